"use strict";
// The page of `fasa profile`: one run, or two that are compared, in the same tables and axes.

const KINDS = {
  scoring: "scoring", codes: "codes", attention: "attention", weights: "weights", append: "append",
  prediction: "prediction", kernels: "other kernels", wait_rows: "waiting for rows",
  wait: "other waits", miss: "rows on demand", prefetch: "rows ahead", write_back: "write-back",
  control: "tables",
};
const kindOf = (part) => part in KINDS ? part : "kernels";
const sum = (of) => Object.values(of).reduce((total, value) => total + value, 0);
const otherWaits = (part) => sum(part.wait_ms) - part.wait_ms.rows;

function profilePage(report) {
  const runs = (report.compare ?? [report]).map((run, i) =>
      ({...run, name: run.file ?? "", timeline: report.timelines[i]}));
  const two = runs.length > 1;
  return [
    ...head(report, runs), totals(runs), ...(two ? [ratioText(report), differences(runs)] : []),
    ...timePart(runs), ...behindPart(runs), ...streamsPart(runs), ...stepsPart(runs),
    ...layersPart(runs), ...runs.map((run) => configOf(named("Config", run), run.config)),
  ];
}

const named = (title, run) => run.name ? `${title}: ${run.name}` : title;
const plural = (count, of) => `${count} ${of}${count === 1 ? "" : "s"}`;

function head(report, runs) {
  const tokens = plural(report.tokens, "token");
  const weights = !report.weight_bits ? "attention only"
                                      : `weights with ${report.weight_bits} bits`;
  return [
    heading(`${report.subject}, ` +
        (report.sequences === 1 ? tokens : `${report.sequences} sequences of ${tokens}`), 1),
    paragraph(`${plural(report.profiled_steps, "step")} after ${report.warmup_steps} to warm up; ` +
        runs[0].machine.text + (report.compute === "modelled"
            ? `; ${weights}, kernel times are modelled` : ""), "quiet"),
    ...(report.selections ? [paragraph(`Selections: ${report.selections}`, "quiet")] : []),
    ...runs.flatMap((run) => [paragraph(run.name ? `${run.name}: ${run.verdict}` : run.verdict,
                                        "verdict"),
                              ...run.notes.map((note) => paragraph(note, "note"))]),
    ...(report.advice ? [paragraph(report.advice.text)] : []),
  ];
}

const ratioText = ({tpot_ratio: {mean, lowest, highest}}) => paragraph(
    `The second takes ${mean.toFixed(3)} times as long as the first; ${lowest.toFixed(3)} to ` +
    `${highest.toFixed(3)} in pairs of alternating steps.`);

// [name, value of a run, its text]; times and bytes have a ratio.
function totalRows(runs) {
  const waits = Object.keys(runs[0].wait_ms).filter(
      (reason) => reason === "rows" || runs.some((run) => run.wait_ms[reason] > 0));
  const share = (value) => percent(value);
  return [
    ["time per output token", (run) => run.tpot_ms, ms],
    ["computing", (run) => run.compute_ms, ms],
    ...waits.map((reason) => [`waiting for ${reason.replace("_", "-")}`,
                              (run) => run.wait_ms[reason], ms]),
    ["nothing to do", (run) => run.idle_ms, ms],
    ["transfer of rows used", (run) => run.transfer_ms, ms],
    ["hidden", (run) => run.transfer_hidden, share],
    ["head groups a layer", (run) => run.head_groups, (value) => number(value, 1)],
    ["fetched on demand, a step", (run) => run.bytes.miss, bytes],
    ["fetched ahead, a step", (run) => run.bytes.prefetch, bytes],
    ["fetched ahead and not used", (run) => run.prefetch.wasted, bytes],
    ["written back, a step", (run) => run.bytes.write_back, bytes],
    ["hit rate", (run) => run.hit_rate, share],
    ["accuracy of prefetch", (run) => run.prefetch.accuracy, share],
    ["coverage of prefetch", (run) => run.bytes.prefetch > 0 ? run.prefetch.coverage : null, share],
    ["kept from step to step", (run) => run.overlap, share],
    ["KV memory on the device", (run) => run.memory.device_kv_bytes, bytes],
    ["KV memory on the host", (run) => run.memory.host_kv_bytes, bytes],
  ];
}

const ratio = (first, second) => known(first) && first > 0 ? (second / first).toFixed(3) : null;

function totals(runs) {
  const rows = totalRows(runs).map(([name, of, text]) => [
    name, ...runs.map((run) => text(of(run))),
    ...(runs.length > 1 ? [[ms, bytes].includes(text) ? ratio(...runs.map(of)) : null] : [])]);
  return table(["", ...runs.map((run) => run.name), ...(runs.length > 1 ? ["ratio"] : [])], rows);
}

// The options in which the two runs' configs differ.
function differences(runs) {
  const [first, second] = runs.map((run) => leaves(run.config));
  const names = [...new Set([...Object.keys(first), ...Object.keys(second)])].filter(
      (name) => first[name] !== second[name]);
  if (names.length === 0) return paragraph("Both configs are the same.");
  return table(["option", ...runs.map((run) => run.name)],
               names.map((name) => [name, first[name], second[name]]));
}

// Kinds of work by time, the longest first, then waits.
function timePart(runs) {
  const order = [...new Set(runs.flatMap((run) => Object.keys(run.parts ?? {})))].sort(
      (a, b) => (runs[0].parts[b]?.ms ?? 0) - (runs[0].parts[a]?.ms ?? 0));
  const rest = [["wait_rows", "waiting for rows", (run) => run.wait_ms.rows],
                ["wait", "other waits", otherWaits],
                ["idle", "nothing to do", (run) => run.idle_ms]];
  const all = [...order.map((part) => [kindOf(part), part, (run) => run.parts[part]?.ms ?? 0]),
               ...rest].filter(([, , of]) => runs.some((run) => of(run) > 0));
  const cells = ([kind, name, of]) => {
    const first = element("span", {}, swatch(kind), name);
    if (runs.length > 1) return [first, ...runs.map((run) => ms(of(run))), ratio(...runs.map(of))];
    const [run] = runs, part = run.parts?.[name];
    return [first, ms(of(run)), percent(of(run) / run.tpot_ms), part && number(part.calls, 0),
            part?.bytes > 0 ? bytes(part.bytes) : null, percent(part?.share_of_bandwidth, 0)];
  };
  return [
    heading("Where the time of a step goes"),
    bars("time of a step", runs.map((run) => run.name || "a step"),
        all.map(([kind, name, of]) => ({name, colour: kind, values: runs.map(of), stack: "step"})),
        {label: "ms"}, {across: true, height: 130 + 40 * runs.length}),
    table(runs.length > 1 ? ["", ...runs.map((run) => run.name), "ratio"]
                          : ["", "time", "share", "calls", "bytes", "of the bandwidth"],
          all.map(cells)),
  ];
}

function behindPart(runs) {
  const moved = runs.map((run) => sum(run.transfers_behind_ms ?? {}));
  if (!moved.some((time) => time > 0)) return [];
  const names = Object.keys(runs[0].transfers_behind_ms).filter(
      (name) => runs.some((run) => run.transfers_behind_ms[name] > 0));
  return [
    heading("What compute did while rows moved over the link"),
    table(["", ...runs.flatMap((run) => [run.name || "time", "share"])], names.map((name) => [
      name === "nothing" ? "it waited" : name, ...runs.flatMap((run, i) => {
        const time = run.transfers_behind_ms[name];
        return [ms(time), moved[i] > 0 ? percent(time / moved[i]) : null];
      })])),
  ];
}

// Spans of all runs' streams that work for layers, and where each layer begins and ends on the
// compute stream.
function spansOf(runs) {
  const lanes = [], spans = [], layers = [];
  runs.forEach((run, i) => {
    const mine = [], places = new Map(), letter = runs.length > 1 ? `${"AB"[i]}: ` : "";
    run.timeline.streams.forEach((name, stream) => {
      if (!run.timeline.entries.some(([of, , , , , layer]) => of === stream && layer >= 0)) return;
      places.set(stream, lanes.length);
      lanes.push(letter + name);
    });
    for (const [stream, start, length, kind, name, layer, moved] of run.timeline.entries) {
      if (!places.has(stream)) continue;
      if (stream === 0 && layer >= 0) {
        const of = mine[layer] ??= {from: start, to: start};
        of.to = Math.max(of.to, start + length);
      }
      const where = layer >= 0 ? `, layer ${layer}` : "";
      const link = moved > 0 ? `, ${bytes(moved)} over the link` : "";
      spans.push({lane: places.get(stream), run: i, from: start, to: start + length,
                  kind: kindOf(kind), title: `${name}${where}: ${length.toFixed(1)} us at ` +
                      `${start.toFixed(1)}${link}`});
    }
    layers.push(mine);
  });
  return {lanes, spans, layers};
}

function streamsPart(runs) {
  const {lanes, spans, layers} = spansOf(runs);
  if (spans.length === 0) return [];
  const kinds = Object.fromEntries(Object.entries(KINDS).filter(
      ([kind]) => spans.some((span) => span.kind === kind)));
  const whole = timeline("the last step by stream", lanes, kinds, "us since the step began");
  whole.show(spans, 0, Math.max(...spans.map((span) => span.to)));
  const result = [heading("The last step, by stream")];
  if (runs.length > 1) {
    result.push(paragraph(runs.map((run, i) => `${"AB"[i]}: ${run.name}`).join("; "), "quiet"));
  }
  result.push(whole.node);
  const count = Math.max(...layers.map((mine) => mine.length)), shown = Math.min(4, count);
  if (count < 2) return result;
  const few = timeline("some layers of the last step", lanes, kinds,
                       "us since the first of them began");
  const text = element("span", {});
  const show = (first) => {
    const begin = layers.map((mine) => mine[first]?.from ?? 0);
    const end = layers.map((mine, i) => (mine[first + shown - 1]?.to ?? begin[i]) - begin[i]);
    text.textContent = `layers ${first} to ${first + shown - 1}`;
    few.show(spans.map((span) => ({...span, from: span.from - begin[span.run],
                                   to: span.to - begin[span.run]})), 0, Math.max(...end));
  };
  const first = Math.floor((count - shown) / 2);
  const slider = element("input", {type: "range", min: 0, max: count - shown, value: first,
                                   ariaLabel: "first layer", oninput: () => show(+slider.value)});
  show(first);
  result.push(heading("Some layers of it", 3), element("label", {}, slider, text), few.node);
  return result;
}

function stepsPart(runs) {
  const steps = {label: "step", min: 1, max: Math.max(2, ...runs.map((run) => run.steps.length))};
  const series = (value) => runs.map((run) => ({name: run.name || "steps",
    points: run.steps.map((step, i) => [i + 1, value(step)])}));
  const span = series((step) => step.ms).flatMap((one) => one.points.map(([, value]) => value));
  return [
    heading("Step by step"),
    element("div", {className: "panels"},
        lines("hit rate by step", steps, {label: "hit rate, %", max: 100},
              series((step) => 100 * step.hit_rate), {height: 220, unit: " %"}),
        lines("time by step", steps, {label: "ms", min: 0, around: 1.1 * Math.max(...span)},
              series((step) => step.ms), {height: 220, unit: " ms"})),
  ];
}

const us = (value) => 1e3 * value;

function layersPart(runs) {
  const parts = (run) => [
    ["computing", "scoring", (layer) => layer.compute_ms, "time"],
    ["waiting for rows", "wait_rows", (layer) => layer.wait_ms.rows, "time"],
    ["other waits", "wait", otherWaits, "time"],
    ["transfer of rows used", "miss", (layer) => layer.transfer_ms, "transfer"],
  ].map(([name, colour, of, stack]) => ({name, colour, stack,
                                        values: run.layers.map((layer) => us(of(layer)))}));
  const top = 1.05 * us(Math.max(...runs.flatMap((run) => run.layers.map((layer) =>
      Math.max(layer.compute_ms + sum(layer.wait_ms), layer.transfer_ms)))));
  return [
    heading("Time of each layer"),
    ...runs.flatMap((run) => [
      ...(run.name ? [heading(run.name, 3)] : []),
      bars(named("time of each layer", run), run.layers.map((_, i) => `${i}`), parts(run),
           {label: "us", min: 0, max: top}, {digits: 1})]),
    ...runs.map((run) => details(named("Numbers of each layer", run), layerTable(run))),
  ];
}

function layerTable(run) {
  const micro = (value) => number(us(value), 1);
  return table(["layer", "compute, us", "waits for rows, us", "other waits, us", "transfer, us",
                "hidden", "hit rate", "accuracy", "coverage", "on demand", "while scoring", "ahead",
                "not used", "kept"],
      run.layers.map((layer) => [`${layer.layer}`, micro(layer.compute_ms),
        micro(layer.wait_ms.rows), micro(otherWaits(layer)), micro(layer.transfer_ms),
        layer.transfer_ms > 0 ? percent(layer.transfer_hidden) : null, percent(layer.hit_rate),
        percent(layer.prefetch.accuracy),
        layer.prefetch.rows > 0 ? percent(layer.prefetch.coverage) : null, bytes(layer.bytes.miss),
        bytes(layer.miss_bytes_while_scoring), bytes(layer.bytes.prefetch),
        bytes(layer.prefetch.wasted), percent(layer.overlap)]));
}
