"use strict";
// The page of `fasa analyze`: for each part an explanation, a picture and its numbers.

function analyzePage(report) {
  return [
    heading(report.model, 1),
    ...report.texts.map((text) => paragraph(`${text.name}: ${text.tokens} tokens, ` +
        `${text.queries} queries on the text, ${text.probes} at repeats of planted strings.`,
        "quiet")),
    ...(report.agreement ? agreementPart(report) : []),
    ...(report.compound ? compoundPart(report) : []),
    ...(report.fifths ? fifthsPart(report) : []),
    ...(report.map_overlap ? overlapPart(report) : []),
    ...(report.selections?.length ? selectionsPart(report) : []),
    ...(report.slices?.length ? slicesPart(report) : []),
    configOf("Config", report.config),
  ];
}

function agreementPart({agreement, window}) {
  const layers = agreement.mean;
  const top = Math.max(1e-6, ...layers.flat().map((of) => Math.max(...of)));
  const right = Math.max(0.5, Math.ceil(10 * top) / 10);
  const distribution = layers.map((heads, layer) => {
    const values = heads.flat().sort((a, b) => a - b);
    return {name: `layer ${layer}`, marked: false, points: [[0, 0],
      ...values.map((value, i) => [value, 100 * (i + 1) / values.length]), [right, 100]]};
  });
  return [
    heading("Contextual agreement of single frequency chunks"),
    paragraph(`CA: the share of a head's ${window} best-scored tokens that are also among the ` +
        `${window} best by one frequency chunk (FC) alone. Mean over queries and texts. ` +
        `${percent(agreement["over_0.4"])} of all FCs are above 0.4, ` +
        `${percent(agreement["under_0.15"])} below 0.15. FC 0 rotates fastest.`),
    heatScale("mean CA", top),
    element("div", {className: "panels"}, ...layers.map((heads, layer) => element("section", {},
        heading(`layer ${layer}`, 3),
        heatPicture(`mean CA of layer ${layer}`, heads, top, "head", "FC")))),
    heading("How many FCs have at most a given CA, layer by layer", 3),
    lines("distribution of CA", {label: "mean contextual agreement (CA) of a frequency chunk",
          min: 0, max: right}, {label: "FCs at or below, %", min: 0, max: 100}, distribution,
          {marks: [0.15, 0.4]}),
  ];
}

const powers = (from, to) => {
  const ticks = [];
  for (let tick = 2 ** Math.ceil(Math.log2(from)); tick <= to; tick *= 2) ticks.push(tick);
  return ticks;
};
const logAxis = (label, values) => {
  const min = Math.min(...values), max = Math.max(...values, 2 * min);
  return {label: `${label} (logarithmic)`, log: true, min, max, ticks: powers(min, max)};
};
const shareAxis = (label) => ({label, min: 0, around: 100});

function compoundPart({compound: {windows, agreement}}) {
  const names = Object.keys(agreement);
  return [
    heading("Compound agreement"),
    paragraph("How many of the head's own K best tokens are among the K best by the summed " +
        "scores of a few FCs, compared with other ways to choose K tokens. FCs are ranked on the " +
        "even queries and measured on the odd ones."),
    table(["tokens chosen by, %", ...windows.map((k) => `K = ${k}`)],
        names.map((name) => [name, ...agreement[name].map((share) => percent(share))])),
    lines("compound agreement", logAxis("K: number of tokens", windows),
        shareAxis("agreement with the head's own best K tokens, %"),
        names.map((name) => ({name, points: windows.map((k, i) => [k, agreement[name][i]])
            .filter(([, share]) => share !== null).map(([k, share]) => [k, 100 * share])}))),
  ];
}

function fifthsPart({fifths, window}) {
  const values = (of) => of.map((share) => 100 * share);
  return [
    heading("Which of the best tokens one FC finds"),
    paragraph(`A head's ${window} best tokens, divided into fifths by rank, and how many of each ` +
        `fifth are among the ${window} best by one FC.`),
    bars("tokens found by fifth",
        ["most important", "second", "third", "fourth", "least important"],
        [{name: "by the head's dominant FC alone", colour: "series0",
          values: values(fifths.dominant), stack: "dominant"},
         {name: "by an FC beyond the first quarter (mean)", colour: "series5",
          values: values(fifths.others), stack: "others"}],
        shareAxis("found, %"), {digits: 1}),
  ];
}

function overlapPart({map_overlap: {texts, sizes}, texts: named}) {
  const names = named.map((text) => text.name);
  return [
    heading("Do maps depend on the text, or on the number of queries?"),
    paragraph("Compares the best quarter of every KV head's FCs, by mean CA."),
    table(["FCs in common, %", ...names],
        texts.map((row, i) => [names[i], ...row.map((share) => percent(share))])),
    lines("overlap of maps", {label: "tenths of the queries used to make the map", min: 2, max: 10},
        shareAxis("FCs in common with the map from all queries, %"),
        [{name: "mean over texts", points: sizes.map((share, i) => [i + 2, 100 * share])}],
        {height: 240}),
  ];
}

function selectionsPart({selections, texts, text_steps}) {
  const methods = [...new Set(selections.map((one) => one.method))];
  const axis = logAxis("tokens attended to", selections.map((one) => one.fac_tokens));
  const picture = (queries) => lines(`distant attention captured, ${queries}`, axis,
      shareAxis("distant attention captured, %"), methods.map((name) => ({name, points: selections
          .filter((one) => one.method === name).sort((a, b) => a.fac_tokens - b.fac_tokens)
          .map((one) => [one.fac_tokens, 100 * one[queries].distant_attention])})));
  return [
    heading("Attention that selections capture"),
    paragraph(`${texts.at(-1).name}, decoded through the runtime with each selection. Distant ` +
        `tokens are those outside the first 4 and the newest 16. First for queries on the last ` +
        `${text_steps} tokens of the text, then for queries at repeats of planted strings, which ` +
        `attend far back.`),
    heading("Queries on text", 3), picture("text"),
    heading("Queries at repeats", 3), picture("probes"),
    details("Numbers", table(["selection", "tokens", "text: attention", "text: distant attention",
                              "repeats: attention", "repeats: distant attention"],
        selections.map((one) => [one.method, `${one.fac_tokens}`,
          ...["text", "probes"].flatMap((queries) => [percent(one[queries].attention),
                                                      percent(one[queries].distant_attention)])]))),
  ];
}

function slicesPart({slices, slice_window}) {
  const dtypes = [...new Set(slices.map((one) => one.dtype))];
  const axis = logAxis("slice bytes per token and KV head", slices.map((one) => one.bytes));
  const picture = (key) => lines(`distant attention kept, ${key}`, axis,
      shareAxis("distant attention kept, % of the oracle's"), dtypes.map((name) => ({name,
        points: slices.filter((one) => one.dtype === name)
            .map((one) => [one.bytes, 100 * one[key]])})));
  return [
    heading("Bits and frequency chunks at equal bytes"),
    paragraph(`Share of the distant attention captured by the true scores that a selection of ` +
        `${slice_window} tokens by slice scores keeps. FCs are ranked on the even queries, by ` +
        `the distant attention that they add.`),
    heading("Queries on text", 3), picture("kept_text"),
    heading("Queries at repeats", 3), picture("kept_probes"),
    details("Numbers", table(["slice", "FCs", "bytes a token", "text: kept", "repeats: kept"],
        slices.map((one) => [one.dtype, `${one.chunks}`, number(one.bytes, 1),
                             percent(one.kept_text), percent(one.kept_probes)]))),
  ];
}
