"""What all report pages share: the frame of a page, tables, style and script. No external resources, no library.

The page is complete without the script; with it, the images of a scenario become a player. Colours are those of the
Okabe-Ito palette, which people with any colour vision can tell apart, and never the only sign.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from specdrive_ros.atomic_file import atomic_write

STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b2129;--soft:#5b6673;--line:#dde2e8;
--plan:#0072b2;--driven:#d55e00;--good:#007a5a;--bad:#c14a00;--mark:#cc79a7}
@media (prefers-color-scheme:dark){:root{--page:#12161b;--card:#1b2128;--ink:#e8ecf0;--soft:#9aa6b2;
--line:#303943;--plan:#56b4e9;--driven:#e69f00;--good:#2fbf94;--bad:#ff8c42;--mark:#e3a5c7}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.5rem;margin:.2em 0}h2{font-size:1.15rem;margin:1.8em 0 .6em}h3{font-size:1.05rem;margin:0}
p{margin:.4em 0}ul{margin:0;padding-left:1.2em}.soft{color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:16px 0}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 16px}.tile b{display:block;white-space:nowrap;font-size:1.55rem;line-height:1.25}
.tile span{color:var(--soft);font-size:.86rem}
.card{padding:16px;margin:14px 0}.columns{display:grid;grid-template-columns:3fr 2fr;gap:14px}
.columns>.card{margin:0}
@media (max-width:800px){.columns{grid-template-columns:1fr}}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:right;font-weight:400}
th:first-child,td:first-child,td.text{text-align:left}th{color:var(--soft);font-size:.86rem}
.badge{display:inline-block;padding:1px 10px;border-radius:99px;font-size:.85rem;font-weight:600;
border:1.5px solid currentColor;white-space:nowrap}.good{color:var(--good)}.bad{color:var(--bad)}
.neutral{color:var(--soft)}
.heading{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;margin-bottom:10px}
.frames{display:grid;grid-template-columns:repeat(auto-fill,minmax(340px,1fr));gap:16px}
.frame{margin:0;min-width:0}.scene{display:flex;gap:8px}.scene>img{flex:10 1 0;min-width:0;width:77%;
border-radius:6px;align-self:flex-start}.scene>svg{flex:3 1 0;min-width:0;align-self:flex-start}
.frame figcaption{padding-top:6px}.reasoning{font-size:1.02em}.reasoning:before{content:"\\201c"}
.reasoning:after{content:"\\201d"}
.player .frames{display:block}.player .frame{display:none}.player .frame.shown{display:block}
.player .scene,.player figcaption{max-width:900px;margin:0 auto}.player figcaption{min-height:4.2em}
.strip{display:flex;gap:6px;overflow-x:auto;padding:8px 0}
.strip button{flex:1 0 78px;max-width:110px;padding:0;border:2px solid transparent;border-radius:6px;
background:none;color:var(--soft);font:12px system-ui;cursor:pointer}
.strip img{width:100%;display:block;border-radius:4px}.strip .shown{border-color:var(--plan);color:var(--ink)}
input[type=range]{width:100%;accent-color:var(--plan)}
svg.plot{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:11px}
.solid{fill:var(--plan)}.pale{fill:var(--plan);opacity:.3}
.maximum{stroke:var(--ink);fill:none;stroke-width:1.5}
.deadline{stroke:var(--bad);stroke-dasharray:4 3}.grid{stroke:var(--line);stroke-width:1}
polyline{fill:none;stroke-linejoin:round;stroke-linecap:round}
.plan{stroke:var(--plan)}.driven{stroke:var(--driven)}.dot{fill:var(--plan)}
.timeline .driven{stroke-width:2}.mark{stroke:var(--mark);stroke-width:2}
.cursor{stroke:var(--plan);stroke-width:1.5}
.birdseye{background:var(--page);border-radius:6px}.birdseye .grid{stroke-width:.15}
.birdseye .plan{stroke-width:1.5;opacity:.6}.birdseye .driven{stroke-width:.5;stroke-dasharray:1.6 1}
.birdseye .ego{fill:var(--soft)}
.key{font-size:.85rem;color:var(--soft)}.key i{display:inline-block;width:18px;height:0;margin:0 5px 3px 12px;
border-top:3px solid}.key .p{border-color:var(--plan)}
.key .d{border-color:var(--driven);border-top-style:dashed}
details{margin-top:10px}summary{cursor:pointer;color:var(--soft)}
@media print{.player .frame{display:block}.strip,input[type=range]{display:none}}
"""

SCRIPT = """
for (const section of document.querySelectorAll("section.scenario")) {
  const frames = [...section.querySelectorAll(".frame")];
  if (frames.length < 2) continue;
  section.classList.add("player");
  const strip = document.createElement("div");
  strip.className = "strip";
  const slider = document.createElement("input");
  Object.assign(slider, {type: "range", min: 0, max: frames.length - 1, step: 1});
  slider.setAttribute("aria-label", "Which picture of the drive");
  const cursor = section.querySelector(".cursor");
  const plot = section.querySelector(".timeline");
  const buttons = frames.map((frame, index) => {
    const button = document.createElement("button");
    const picture = document.createElement("img");
    picture.src = frame.querySelector("img").src;
    picture.alt = "";
    button.append(picture, frame.dataset.time + " s");
    button.onclick = () => show(index);
    strip.append(button);
    return button;
  });
  function show(index) {
    slider.value = index;
    frames.forEach((frame, k) => frame.classList.toggle("shown", k === index));
    buttons.forEach((button, k) => button.classList.toggle("shown", k === index));
    if (!plot) return;
    const [offset, scale] = plot.dataset.x.split(" ").map(Number);
    const x = offset + scale * Number(frames[index].dataset.time);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
  }
  slider.oninput = () => show(Number(slider.value));
  section.querySelector(".frames").after(slider, strip);
  show(section.classList.contains("failed") ? frames.length - 1 : 0);
}
"""


def page(title: str, body: str) -> str:
    """A whole HTML document. title: plain text; body: HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def card(title: str, content: str) -> str:
    """A block of the page under a heading. title: plain text; content: HTML."""
    return f'<div class="card"><h3>{escape(title)}</h3>{content}</div>'


def table(head: Sequence, rows: Iterable[Sequence]) -> str:
    """An HTML table. Cells are plain text or numbers."""

    def line(cells: Sequence, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def figure_file(svg: str) -> str:
    """An inline figure as the content of a file of its own, for documents that show pictures."""
    opened = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return opened.replace(">", f"><style>{STYLE}</style>", 1) + "\n"


def write_page(path: Path, text: str) -> None:
    """Replaces `path` in one step."""
    with atomic_write(Path(path)) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
