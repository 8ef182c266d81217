"use strict";
// Charts of all reports, drawn by Chart.js in the page's colours.

// A custom property's value as a colour that a canvas knows.
function colour(name) {
  const probe = element("span", {style: `color: var(--${name})`});
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const charts = [];  // of the page as drawn

function applyTheme() {
  while (charts.length > 0) charts.pop().destroy();
  Object.assign(Chart.defaults, {
    color: colour("text"), borderColor: colour("line"), animation: false, responsive: true,
    maintainAspectRatio: false, normalized: true,
  });
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.plugins.legend.labels.boxWidth = 12;
  Chart.defaults.plugins.legend.labels.boxHeight = 12;
}

// `place` is in the page when the chart is made, because a chart takes its width from there.
const waiting = [];
function chart(label, height, config) {
  const canvas = element("canvas", {role: "img", ariaLabel: label});
  waiting.push(() => charts.push(new Chart(canvas, config())));
  return element("div", {className: "chart", style: `height: ${height}px`}, canvas);
}
function drawCharts() {
  while (waiting.length > 0) waiting.shift()();
}

// A chart under the label of its vertical axis, which would not fit beside a low one.
const labelled = (label, node) => element("div", {}, paragraph(label, "quiet"), node);

// axis: {label, min, max, around, log, ticks}; `around`: a maximum that values may exceed; log:
// base 2.
function scaleOf(axis, titled = true) {
  const scale = {
    type: axis.log ? "logarithmic" : "linear",
    title: {display: titled, text: axis.label},
    min: axis.min, max: axis.max, suggestedMax: axis.around,
    ticks: {maxRotation: 0, autoSkipPadding: 12, includeBounds: false,
            callback: (value) => `${+value.toPrecision(6)}`},
  };
  if (axis.ticks) {
    scale.afterBuildTicks = (of) => { of.ticks = axis.ticks.map((value) => ({value})); };
  }
  return scale;
}

// series: [{name, points: [[x, y], ...], marked, dashed}]; marks: x of vertical lines.
function lines(label, x, y, series, {height = 320, marks = [], unit = ""} = {}) {
  const many = series.length > 10;
  const datasets = () => series.map((one, index) => ({
    label: one.name,
    data: one.points.map(([at, value]) => ({x: at, y: value})),
    showLine: true, borderWidth: 1.8, pointRadius: one.marked === false ? 0 : 3,
    pointHitRadius: 6, clip: 5, borderColor: colour(`series${index % 10}`),
    backgroundColor: colour(`series${index % 10}`), borderDash: index >= 10 ? [5, 3] : [],
  })).concat(marks.map((at) => ({
    label: "", data: [{x: at, y: y.min}, {x: at, y: y.max}], showLine: true, pointRadius: 0,
    borderColor: colour("quiet"), borderDash: [2, 3], borderWidth: 1,
  })));
  return labelled(y.label, chart(label, many ? height + 80 : height, () => ({
    type: "scatter",
    data: {datasets: datasets()},
    options: {
      scales: {x: scaleOf(x), y: scaleOf(y, false)},
      plugins: {
        legend: {display: series.length > 1, position: "bottom",
                 labels: {filter: (item) => item.text !== ""}},
        tooltip: {callbacks: {label: ({dataset, parsed}) =>
            `${dataset.label}: ${+parsed.x.toPrecision(4)}, ${+parsed.y.toPrecision(4)}${unit}`}},
      },
    },
  })));
}

// Bars over names; parts: [{name, colour, values, stack}]. `across`: bars lie, one per name.
function bars(label, names, parts, axis, {height = 260, across = false, digits = 3} = {}) {
  const value = scaleOf(axis, across);
  const category = {grid: {display: false},
                    ticks: {autoSkip: !across, maxRotation: 0, autoSkipPadding: 6}};
  value.stacked = category.stacked = true;
  const node = chart(label, height, () => ({
    type: "bar",
    data: {labels: names, datasets: parts.map((part) => ({
      label: part.name, data: part.values, backgroundColor: colour(part.colour), stack: part.stack,
    }))},
    options: {
      indexAxis: across ? "y" : "x",
      scales: across ? {x: value, y: category} : {x: category, y: value},
      plugins: {
        legend: {position: "bottom"},
        tooltip: {callbacks: {label: ({dataset, raw}) =>
            `${dataset.label}: ${number(raw, digits)}`}},
      },
    },
  }));
  return across ? node : labelled(axis.label, node);
}

// Spans in lanes. lanes: names; spans: [{lane, from, to, kind, title}]; kinds: {kind: name}.
// Returns the element and show(spans, min, max), which draws other spans.
function timeline(label, lanes, kinds, unit) {
  let drawn = null, now = null;
  const datasets = ({spans, min, max}) => Object.keys(kinds).map((kind) => ({
    label: kinds[kind], backgroundColor: colour(kind), grouped: false, barPercentage: 0.8,
    categoryPercentage: 1, minBarLength: 1,
    data: spans.filter((span) => span.kind === kind && span.to > min && span.from < max).map(
        (span) => ({x: [Math.max(min, span.from), Math.min(max, span.to)],
                    y: lanes[span.lane], title: span.title})),
  })).filter((set) => set.data.length > 0);
  const node = chart(label, 34 * lanes.length + 120, () => {
    drawn = {
      type: "bar", data: {datasets: datasets(now)},
      options: {
        indexAxis: "y",
        scales: {
          x: {...scaleOf({label: unit, min: now.min, max: now.max}), position: "bottom"},
          y: {type: "category", labels: lanes, grid: {display: false}, ticks: {autoSkip: false}},
        },
        plugins: {
          legend: {position: "bottom"},
          tooltip: {filter: (item, index) => index === 0,
                    callbacks: {title: () => "", label: ({raw}) => raw.title}},
        },
      },
    };
    return drawn;
  });
  const show = (spans, min, max) => {
    now = {spans, min, max};
    if (drawn === null) return;
    const made = Chart.getChart(node.querySelector("canvas"));
    made.data.datasets = datasets(now);
    Object.assign(made.options.scales.x, {min, max});
    made.update();
  };
  return {node, show};
}
