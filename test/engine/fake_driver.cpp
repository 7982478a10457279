// The calls of libcuda that cuda_driver.py makes, on host memory: checks numbers and the layout of what is passed.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace {
std::vector<std::function<void()>> *capturing = nullptr;
int current = 0;
bool refuse_capture() { return std::getenv("FAKE_NO_CAPTURE") != nullptr; }
void queue(std::function<void()> work) { capturing ? capturing->push_back(work) : work(); }
}  // namespace

extern "C" {
struct Copy2D {  // CUDA_MEMCPY2D as cuda.h has it
  size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void *srcHost;
  unsigned long long srcDevice;
  void *srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  int dstMemoryType;
  void *dstHost;
  unsigned long long dstDevice;
  void *dstArray;
  size_t dstPitch, WidthInBytes, Height;
};

int cuInit(unsigned flags) { return flags; }
int cuGetErrorString(int status, const char **text) { *text = status == 2 ? "out of memory" : "wrong"; return 0; }
int cuDeviceGetCount(int *count) { *count = std::getenv("FAKE_NO_GPU") ? 0 : 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { std::strncpy(name, "Fake GPU", size); return device != 40; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 9 : -1;
  return device != 40;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x1234; return device != 40; }
int cuCtxSetCurrent(void *context) { current = context == (void *)0x1234; return !current; }
int cuMemAlloc_v2(unsigned long long *address, size_t size) {
  if (size > (1ull << 40)) return 2;
  *address = (unsigned long long)std::aligned_alloc(256, (size + 255) / 256 * 256);
  std::memset((void *)*address, 0xAA, size);
  return !current;
}
int cuMemFree_v2(unsigned long long address) { std::free((void *)address); return 0; }
int cuMemHostAlloc(void **address, size_t size, unsigned flags) { *address = std::malloc(size); return flags; }
int cuMemFreeHost(void *address) { std::free(address); return 0; }
int cuMemsetD8Async(unsigned long long address, unsigned char value, size_t count, void *stream) {
  queue([=] { std::memset((void *)address, value, count); });
  return stream != (void *)0x77;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t size, void *stream) {
  queue([=] { std::memcpy((void *)to, from, size); });
  return stream != (void *)0x77;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t size, void *stream) {
  queue([=] { std::memcpy(to, (void *)from, size); });
  return stream != (void *)0x77;
}
int cuMemcpy2DAsync_v2(const Copy2D *given, void *stream) {
  Copy2D c = *given;
  if (c.srcMemoryType != 2 || c.dstMemoryType != 2 || c.srcXInBytes || c.dstXInBytes || c.srcY || c.dstY) return 1;
  if (c.WidthInBytes > c.srcPitch || c.WidthInBytes > c.dstPitch) return 1;  // the driver refuses this
  queue([=] {
    for (size_t row = 0; row < c.Height; ++row)
      std::memcpy((char *)c.dstDevice + row * c.dstPitch, (char *)c.srcDevice + row * c.srcPitch, c.WidthInBytes);
  });
  return stream != (void *)0x77;
}
int cuStreamCreate(void **stream, unsigned flags) { *stream = (void *)0x77; return flags != 1; }
int cuStreamSynchronize(void *stream) { return capturing ? 900 : stream != (void *)0x77; }
int cuStreamBeginCapture_v2(void *stream, int mode) {
  capturing = new std::vector<std::function<void()>>;
  return mode != 1 || stream != (void *)0x77;
}
int cuStreamEndCapture(void *stream, void **graph) {
  *graph = refuse_capture() ? nullptr : capturing;
  capturing = nullptr;
  return refuse_capture() ? 901 : stream != (void *)0x77;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  *executable = new std::vector<std::function<void()>>(*(std::vector<std::function<void()>> *)graph);
  return (int)flags;
}
int cuGraphLaunch(void *executable, void *stream) {
  for (auto &work : *(std::vector<std::function<void()>> *)executable) work();
  return stream != (void *)0x77;
}
int cuGraphDestroy(void *graph) { delete (std::vector<std::function<void()>> *)graph; return 0; }
int cuGraphExecDestroy(void *graph) { delete (std::vector<std::function<void()>> *)graph; return 0; }
}
