"use strict";
/* The MLP as a selector: a subject and a relation are picked, and row, units and answer of that fact are drawn. */
(function () {
  const walk = report.data.walk;
  if (!walk) return;
  const S = walk.subjects.length, R = walk.relations.length, K = walk.top_count, C = walk.classes.length;
  const widths = walk.layers.map((layer) => layer.units.length), L = widths.length;
  const U = widths.reduce((a, b) => a + b, 0);
  const BLUE = "#0072B2", GREEN = "#009E73", RED = "#D55E00", GREY = "#8A9099";
  const CLASS_COLOURS = { gate: BLUE, "data-dependent": "#E69F00", "always-on": GREEN, "always-off": GREY };

  function bytes(text) { return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); }
  const pre = bytes(walk.pre);
  const open = new Uint16Array(bytes(walk.open).buffer);
  const parts = new Float32Array(bytes(walk.parts).buffer);
  const own = new Int32Array(bytes(walk.own).buffer);
  const rank = new Int32Array(bytes(walk.rank).buffer);
  const ownLogit = new Float32Array(bytes(walk.own_logit).buffer);
  const top = new Int32Array(bytes(walk.top).buffer);
  const topLogit = new Float32Array(bytes(walk.top_logit).buffer);

  /* Pre-activations of a layer's drawn units, for subject s asked r: size (m/7)^2 of the largest, sign from the code. */
  function preActivations(s, r, layer) {
    const start = (s * R + r) * U + widths.slice(0, layer).reduce((a, b) => a + b, 0);
    return Array.from({ length: widths[layer] }, function (_, i) {
      const pair = pre[(start + i) >> 1], code = (start + i) % 2 ? pair & 15 : pair >> 4;
      const size = walk.layers[layer].largest * (((code & 7) / 7) ** 2);
      return code >= 1 && code <= 7 ? size : -size;
    });
  }
  function isOpen(s, r, layer) { return preActivations(s, r, layer).map((x) => (x > 0 ? 1 : 0)); }

  function shortened(name, letters) { return name.length <= letters ? name : name.slice(0, letters - 1) + "…"; }
  const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;", $: "&#36;" };
  /* A name that plotly draws letter for letter, as geointerp.report.wording.plotly_text does. */
  function literal(name, letters) {
    const text = letters ? shortened(name, letters) : name;
    const turned = /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff]/.test(text);
    return (turned ? "\u2068" + text + "\u2069" : text).replace(/[&<>%$]/g, (letter) => ENTITIES[letter]);
  }
  function hover(name) { return (name.match(/[^]{1,60}/g) || [""]).map((line) => literal(line)).join("<br>"); }
  function number(x) { return (Math.abs(x) < 10 ? x.toFixed(2) : x.toFixed(1)).replace("-", "\u2212"); }

  const pick = {};
  for (const what of ["subject", "relation", "layer"]) pick[what] = document.getElementById("walk-" + what);
  function fill(select, names) {
    names.forEach(function (name, i) {
      const option = document.createElement("option");
      option.value = i;
      option.textContent = shortened(name, 60);
      select.append(option);
    });
  }
  fill(pick.subject, walk.subjects);
  fill(pick.relation, walk.relations);

  function attributeOf(s, r) {
    const a = own[s * R + r];
    return a < 0 ? null : walk.attributes[a];
  }

  /* Horizontal bars with their names above them, so that long names take no width. */
  function bars(id, items, title, description) {
    const colours = report.colours(), most = Math.max(...items.map((item) => item.value), 1e-9);
    const least = Math.min(0, ...items.map((item) => item.value));
    const y = items.map((_, i) => i);
    report.draw(id, [{
      type: "bar", orientation: "h", y: y, x: items.map((item) => item.value), width: 0.36,
      marker: {
        color: items.map((item) => item.colour || colours.closed),
        pattern: { shape: items.map((item) => item.pattern || ""), size: 5, solidity: 0.35, fgcolor: colours.ink },
      },
      customdata: items.map((item) => [hover(item.name), number(item.value)]),
      hovertemplate: "%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
      text: items.map((item) => number(item.value)), textposition: "outside", cliponaxis: false,
    }], {
      height: 330, margin: { l: 6, r: 6, t: 4, b: 40 }, showlegend: false,
      xaxis: { title: { text: title }, range: [least * 1.25, most * 1.25], nticks: 4, zeroline: true },
      yaxis: { range: [items.length - 0.55, -0.75], showticklabels: false, ticks: "", showgrid: false },
      annotations: items.map((item, i) => ({
        xref: "paper", x: 0, xanchor: "left", y: i - 0.2, yanchor: "bottom", showarrow: false,
        text: item.bold ? "<b>" + literal(item.label, 30) + "</b>" : literal(item.label, 30),
        font: { size: 12, color: item.bold ? colours.ink : colours.soft },
      })),
    });
    document.getElementById(id).setAttribute("aria-label", description);
  }

  function rowStage(s, r) {
    const at = s * (R + 2);
    let shown = walk.relations.map((_, q) => q);
    if (R > 7) {
      shown.sort((a, b) => (b === r) - (a === r) || parts[at + b] - parts[at + a] || a - b);
      shown = shown.slice(0, 7).sort((a, b) => a - b);
    }
    const items = shown.map(function (q) {
      const attribute = attributeOf(s, q), label = walk.relations[q] + ": " + (attribute === null ? "no fact" : attribute);
      const short = shortened(walk.relations[q], 16) + ": " + (attribute === null ? "no fact" : attribute);
      return { value: parts[at + q], name: label, label: (q === r ? "▸ " : "") + short, bold: q === r, colour: q === r ? BLUE : undefined };
    });
    items.push({ value: parts[at + R], name: "intercept c, the same for all subjects", label: "intercept", pattern: "." });
    items.push({ value: parts[at + R + 1], name: "residual: what the fitted sum leaves over", label: "residual", pattern: "/" });
    const asked = attributeOf(s, r);
    const said = asked === null
      ? "The table holds no fact for this subject and relation, so the row has no component for it."
      : "The component of " + shortened(walk.relations[r], 30) + " stands for " + shortened(asked, 40) + " and is " +
        number(parts[at + r]) + " times as long as the row" + (R > 7 ? "; the largest others are shown." : ".");
    document.getElementById("walk-row-text").textContent = said;
    bars("figure-walk-row", items, "length / length of the row", said);
    return items;
  }

  function unitStage(s, r, layer) {
    const colours = report.colours(), info = walk.layers[layer], values = preActivations(s, r, layer);
    const kinds = info.kinds.map((kind) => walk.classes[kind]);
    const counts = walk.classes.map((_, c) => open[((s * R + r) * L + layer) * C + c]);
    const total = counts.reduce((a, b) => a + b, 0);
    const others = walk.relations.map((_, q) => q).filter((q) => q !== r).slice(0, 7);
    const rows = [r].concat(others), masks = rows.map((q) => isOpen(s, q, layer));
    const here = masks[0], count = (mask) => mask.reduce((a, b) => a + b, 0);
    let said = total + " of " + info.total + " units open" + (L > 1 ? " in layer " + layer : "") + ": " +
      walk.classes.map((name, c) => counts[c] + " " + name).filter((_, c) => counts[c] > 0).join(", ") + ".";
    if (others.length) {
      const shared = masks.slice(1).map((mask) => here.filter((on, i) => on && mask[i]).length);
      const least = shared.indexOf(Math.min(...shared)), scope = widths[layer] < info.total ? " drawn" : "";
      said += " Of the " + count(here) + scope + ", " + shared[least] + " also open under " +
        shortened(walk.relations[others[least]], 24) + (others.length > 1 ? ", the fewest of the relations compared." : ".");
    }
    document.getElementById("walk-units-text").textContent = said;
    const x = values.map((_, i) => i), edges = [];
    kinds.forEach((kind, i) => { if (i && kinds[i - 1] !== kind) edges.push(i - 0.5); });
    const most = Math.max(...values.map(Math.abs), 1e-9);
    report.draw("figure-walk-units", [{
      type: "bar", x: x, y: values, marker: { color: values.map((v, i) => (v > 0 ? CLASS_COLOURS[kinds[i]] : colours.closed)), line: { width: 0 } },
      customdata: values.map((v, i) => ["unit " + info.units[i] + ", " + kinds[i], v > 0 ? "open" : "closed", number(v)]),
      hovertemplate: "%{customdata[0]}<br>%{customdata[1]}, pre-activation about %{customdata[2]}<extra></extra>",
    }, {
      type: "heatmap", x: x, y: rows.map((_, i) => i), z: masks, xaxis: "x2", yaxis: "y2", zmin: 0, zmax: 1, showscale: false, ygap: 2,
      colorscale: [[0, report.dark() && !report.printing ? "#2a3038" : "#eceae6"], [1, colours.ink]],
      customdata: rows.map((q) => x.map((i) => [hover(shortened(walk.relations[q], 120)), info.units[i]])),
      hovertemplate: "%{customdata[0]}<br>unit %{customdata[1]}: %{z} (1 is open)<extra></extra>",
    }], {
      height: 330, margin: { l: 6, r: 6, t: 4, b: 8 }, showlegend: false, bargap: 0,
      xaxis: { showticklabels: false, ticks: "", showgrid: false, range: [-0.5, x.length - 0.5], anchor: "y" },
      yaxis: { domain: [0.5, 0.93], range: [-most * 1.05, most * 1.05], zeroline: true, showticklabels: false, ticks: "", showgrid: false },
      xaxis2: { matches: "x", showticklabels: false, ticks: "", showgrid: false, anchor: "y2" },
      yaxis2: { domain: [0, 0.4], range: [rows.length - 0.5, -0.5], showticklabels: false, ticks: "", showgrid: false },
      shapes: edges.map((edge) => ({ type: "line", x0: edge, x1: edge, yref: "paper", y0: 0.5, y1: 0.93, line: { color: colours.zero, width: 1, dash: "dot" } })),
      annotations: [
        { xref: "paper", yref: "paper", x: 0, y: 0.94, xanchor: "left", yanchor: "bottom", showarrow: false, text: "pre-activation: open above, closed below", font: { size: 11, color: colours.soft } },
        { xref: "paper", yref: "paper", x: 0, y: 0.41, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 11, color: colours.soft },
          text: rows.length > 1 ? "open units of this subject, a row a relation, ▸ " + literal(walk.relations[r], 14) + " first" : "open units" },
      ],
    });
    document.getElementById("figure-walk-units").setAttribute("aria-label", said);
    const key = document.getElementById("walk-key");
    key.textContent = "";
    for (const [name, colour] of Object.entries(CLASS_COLOURS).concat([["closed", colours.closed]])) {
      if (name !== "closed" && !kinds.includes(name)) continue;
      const mark = document.createElement("i");
      mark.style.background = colour;
      key.append(mark, name);
    }
    return { total, counts, said };
  }

  function answerStage(s, r) {
    const at = s * R + r, right = own[at], first = top[at * K];
    const items = Array.from({ length: K }, function (_, k) {
      const a = top[at * K + k], name = walk.attributes[a];
      const correct = a === right;
      return { value: topLogit[at * K + k], name: name, label: (correct ? "✓ " : k === 0 && right >= 0 ? "✗ " : "") + name, bold: correct || k === 0,
        colour: correct ? GREEN : k === 0 && right >= 0 ? RED : undefined, pattern: correct || k > 0 ? "" : right >= 0 ? "x" : "" };
    });
    if (right >= 0 && !items.some((item) => item.label.startsWith("✓ "))) {
      items.push({ value: ownLogit[at], name: walk.attributes[right], label: "✓ " + walk.attributes[right], bold: true, colour: GREEN });
    }
    const given = walk.attributes[first], lead = K > 1 ? topLogit[at * K] - topLogit[at * K + 1] : NaN;
    const ok = right >= 0 && rank[at] === 0;
    const verdict = right < 0 ? "no such fact in the table" : ok ? "right" : "wrong";
    const said = "The top attribute is " + shortened(given, 40) + (K > 1 ? ", ahead of the next by " + number(lead) + " in logit" : "") +
      (right < 0 ? "; there is no right answer to compare." : ok ? "; it is right." : "; the right one, " + shortened(walk.attributes[right], 40) + ", is at place " + (rank[at] + 1) + ".");
    document.getElementById("walk-answer-text").textContent = said;
    bars("figure-walk-answer", items, "logit above the mean of all", said);
    return { items, given, verdict, ok };
  }

  function tabulate(rows) {
    const body = document.querySelector("#walk-table tbody");
    body.textContent = "";
    for (const row of rows) {
      const line = document.createElement("tr");
      row.forEach(function (text, i) {
        const cell = document.createElement("td");
        if (i === 2 && row[3]) cell.className = "n";
        cell.textContent = text;
        if (i < 3) line.append(cell);
      });
      body.append(line);
    }
  }

  function show() {
    const s = +pick.subject.value, r = +pick.relation.value, layer = pick.layer ? +pick.layer.value : 0;
    const components = rowStage(s, r), units = unitStage(s, r, layer), answer = answerStage(s, r);
    const outcome = document.getElementById("walk-outcome");
    outcome.textContent = "";
    const given = document.createElement("strong");
    given.id = "walk-given";
    given.textContent = answer.given;
    const mark = answer.verdict === "right" ? " ✓ right" : answer.verdict === "wrong" ? " ✗ wrong" : " – no such fact in the table";
    const bdi = (text) => { const node = document.createElement("bdi"); node.textContent = text; return node; };
    outcome.append(bdi(walk.subjects[s]), ", asked for ", bdi(walk.relations[r]), ": ", given, mark);
    tabulate([
      ...components.map((item) => ["1, row", item.name, number(item.value), true]),
      ["2, units", units.said, String(units.total), true],
      ["3, answer", "given: " + answer.given, answer.verdict, false],
      ["3, answer", "right answer in the table", attributeOf(s, r) === null ? "none" : attributeOf(s, r), false],
      ...answer.items.map((item) => ["3, answer", item.label, number(item.value), true]),
    ]);
    document.getElementById("walk-before").disabled = s === 0;
    document.getElementById("walk-next").disabled = s === S - 1;
  }
  function move(by) { pick.subject.value = String(Math.min(S - 1, Math.max(0, +pick.subject.value + by))); show(); }
  document.getElementById("walk-before").addEventListener("click", () => move(-1));
  document.getElementById("walk-next").addEventListener("click", () => move(1));
  for (const select of Object.values(pick)) if (select) select.addEventListener("change", show);
  document.addEventListener("report-paper", show);
  show();
})();
