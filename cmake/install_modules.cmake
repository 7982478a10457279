# Puts the Python modules beside the generated messages, so that `specdrive_ros` is one package. (Not with
# ament_python_install_package: it and rosidl_generate_interfaces refuse to share a name.)

find_package(ament_cmake_python REQUIRED)  # PYTHON_INSTALL_DIR, the folder rosidl uses too

install(DIRECTORY specdrive_ros DESTINATION "${PYTHON_INSTALL_DIR}"
  PATTERN "__pycache__" EXCLUDE
  PATTERN "*.pyc" EXCLUDE)
install(DIRECTORY config launch models DESTINATION "share/${PROJECT_NAME}")
install(DIRECTORY engines DESTINATION "share/${PROJECT_NAME}" PATTERN "built" EXCLUDE)

# An executable script `name` in `folder` that calls main() of a module.
function(install_entry_point name module folder)
  set(script "${CMAKE_CURRENT_BINARY_DIR}/entry_points/${folder}/${name}")
  configure_file(cmake/entry_point.in "${script}" @ONLY)
  install(PROGRAMS "${script}" DESTINATION "${folder}")
endfunction()

# A signal while rclpy is being imported ends a node quietly.
set(prelude "from specdrive_ros.ros.starting import end_quietly_on_signals\n\nend_quietly_on_signals()\n")
foreach(node planner controller sim)
  install_entry_point(${node} "specdrive_ros.ros.${node}_node" "lib/${PROJECT_NAME}")
endforeach()
set(prelude "")
install_entry_point(specdrive "specdrive_ros.cli.main" bin)
