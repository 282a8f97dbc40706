"use strict";
/* Draws the figures, in the colours of the paper, and redraws them when the paper or the width changes. */
const report = {
  data: JSON.parse(document.getElementById("report-data").textContent),
  drawn: new Map(), // element id -> [traces, layout]
  config: {
    displayModeBar: false, displaylogo: false, responsive: false, showTips: false, displayNotifier: false,
    showSendToCloud: false, scrollZoom: false,
  },
};

report.dark = function () {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

report.colours = function () {
  return report.printing || !report.dark()
    ? { ink: "#1d2228", soft: "#59626d", grid: "#e9e7e3", zero: "#a9aeb5", surface: "#ffffff", closed: "#c9cdd3" }
    : { ink: "#e6e8eb", soft: "#a3abb5", grid: "#2a3038", zero: "#6b747f", surface: "#242a31", closed: "#474e58" };
};

/* The layout with the page's type and colours; what a figure sets itself stays. */
report.themed = function (layout, width) {
  const colours = report.colours();
  const touch = matchMedia("(pointer: coarse)").matches; // a drag on a phone scrolls the page
  const narrow = width < 520 && layout.meta && layout.meta.narrow;
  const copy = Object.assign(structuredClone(layout), structuredClone(narrow || {}));
  copy.font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", size: width < 520 ? 11 : 13, color: colours.ink };
  copy.paper_bgcolor = copy.plot_bgcolor = "rgba(0,0,0,0)";
  copy.hoverlabel = { align: "left", bgcolor: colours.surface, bordercolor: colours.zero, font: { color: colours.ink } };
  copy.dragmode = touch ? false : "zoom";
  copy.width = width;
  for (const name of Object.keys(copy)) {
    if (/^[xy]axis\d*$/.test(name)) {
      copy[name] = {
        gridcolor: colours.grid, zerolinecolor: colours.zero, linecolor: colours.zero, tickcolor: colours.zero,
        zeroline: false, fixedrange: touch, ...copy[name],
      };
      const title = copy[name].title;
      if (title) copy[name].title = { standoff: 8, ...title, font: { size: copy.font.size, color: colours.soft } };
    }
  }
  for (const shape of copy.shapes || []) {
    if (shape.line && shape.line.color === "#fff") shape.line.color = colours.surface;
  }
  return copy;
};

report.draw = function (id, traces, layout) {
  const element = document.getElementById(id);
  report.drawn.set(id, [traces, layout]);
  const width = report.printing ? Math.min(element.clientWidth, 660) : element.clientWidth;
  const themed = report.themed(layout, width);
  element.style.height = themed.height + "px";
  return Plotly.react(element, traces, themed, report.config);
};

report.redraw = function () {
  for (const [id, [traces, layout]] of report.drawn) report.draw(id, traces, layout);
};

for (const figure of report.data.figures) report.draw("figure-" + figure.id, figure.data, figure.layout);

(function () {
  const button = document.getElementById("theme");
  function label() {
    button.textContent = report.dark() ? "Light paper" : "Dark paper";
    button.setAttribute("aria-pressed", String(report.dark()));
  }
  button.hidden = false;
  button.addEventListener("click", function () {
    document.documentElement.dataset.theme = report.dark() ? "light" : "dark";
    label();
    repaint();
  });
  function repaint() {
    report.redraw();
    document.dispatchEvent(new Event("report-paper")); // the walk chooses colours of its own
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { label(); repaint(); });
  let width = window.innerWidth, waiting = 0;
  window.addEventListener("resize", function () {
    if (window.innerWidth === width) return; // a phone hides its address bar: nothing to draw anew
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(report.redraw, 80);
  });
  window.addEventListener("beforeprint", function () { report.printing = true; repaint(); });
  window.addEventListener("afterprint", function () { report.printing = false; repaint(); });
  label();
})();
