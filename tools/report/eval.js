"use strict";
// The page of `fasa eval`: all methods in one table, then where planted facts were recalled.

function evalPage(report) {
  const methods = report.methods ?? [report];
  return [
    heading(`${report.task}: ${report.model}`, 1),
    ...report.notes.map((note) => paragraph(note, "note")),
    ...methodTable(methods), ...factMaps(methods),
    ...methods.map((one) => configOf(`Config of ${one.method}`, one.config)),
  ];
}

const METRICS = {perplexity: ["perplexity", 4, 1], accuracy: ["accuracy, %", 1, 100],
                 score: ["score", 1, 1]};

function methodTable(methods) {
  const metric = Object.keys(METRICS).find((name) => name in methods[0]);
  const [name, digits, scale] = METRICS[metric];
  const value = (of) => number(scale * of[metric], digits);
  const range = (interval, by, places) =>
      interval && `${number(by * interval[0], places)} to ${number(by * interval[1], places)}`;
  const result = (of) => [value(of), range(of.interval, scale, digits), `${of.examples}`];
  const paired = (of, by, places) =>
      of ? [number(by * of.mean, places), range(of.interval, by, places)] : [null, null];
  const against = (task) => [...paired(task.against_full?.retained, 100, 1),
                             ...paired(task.against_full?.kl, 1, 4),
                             ...paired(task.against_full?.same_best, 100, 1),
                             ...paired(task.against_full?.perplexity_change, 1, 2)];
  const compared = methods.some((one) => one.tasks.some((task) => task.against_full));
  const columns = [name, "95 %", "examples", ...(compared
      ? ["of full's right answers, %", "95 %", "KL to full, nats", "95 %", "same best token, %", "95 %", "perplexity change, %", "95 %"]
      : [])];
  const cells = (task) => [...result(task), ...(compared ? against(task) : [])];
  if (methods.every((one) => one.tasks.length === 1)) {
    return [table(["method", ...columns],
                  methods.map((one) => [one.method, ...cells(one.tasks[0])]))];
  }
  const each = methods.flatMap((one) =>
      one.tasks.map((task) => [one.method, task.task, ...cells(task)]));
  return [
    table(["method", ...methods[0].tasks.map((task) => task.task), `all: ${name}`, "95 %",
           "examples"],
          methods.map((one) => [one.method, ...one.tasks.map(value), ...result(one)])),
    details("Each task", table(["method", "task", ...columns], each)),
  ];
}

function factMaps(methods) {
  if (!methods.some((one) => one.facts?.length)) return [];
  const sorted = (of, key) =>
      [...new Set(of.map((fact) => fact[key]))].sort((a, b) => a - b);
  return [
    heading("Facts recalled, by position in the text"),
    paragraph("Rows: how deep in the text the fact is. Columns: tokens of the text.", "quiet"),
    element("div", {className: "panels"}, ...methods.map(({method, facts}) => {
      const depths = sorted(facts, "depth"), lengths = sorted(facts, "context");
      const cell = (depth, context) => {
        const found = facts.find((fact) => fact.depth === depth && fact.context === context);
        if (!found) return null;
        const share = found.right / found.asked, of = `${found.right} of ${found.asked}`;
        return {share, text: percent(share, 0), small: of,
                title: `${context} tokens, ${percent(depth)} deep: ${of} right`};
      };
      return element("section", {}, heading(method, 3), heatTable("depth", lengths.map(String),
          depths.map((depth) => `${+(100 * depth).toPrecision(3)} %`),
          depths.map((depth) => lengths.map((context) => cell(depth, context)))));
    })),
  ];
}
