"use strict";
// Draws the report that is in the page, and again when the colour scheme changes.
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const pages = {profile: profilePage, eval: evalPage, analyze: analyzePage};
  const draw = () => {
    applyTheme();
    document.getElementById("page").replaceChildren(...pages[report.report](report));
    drawCharts();
  };
  document.title = `fasa ${report.report}`;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
