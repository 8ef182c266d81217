"use strict";
// The page of `fasa analyze`: for each part an explanation, a picture and its numbers.

function analyzePage(report) {
  return [
    heading(report.model, 1),
    ...report.texts.map((text) => paragraph(`${text.name}: ${text.tokens} tokens, ` +
        `${text.queries} queries.`, "quiet")),
    ...(report.agreement ? agreementPart(report) : []),
    ...(report.map_overlap ? overlapPart(report) : []),
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

const shareAxis = (label) => ({label, min: 0, around: 100});

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
