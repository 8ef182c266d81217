"use strict";
// Heat maps: a table with a number in each cell, and a picture for tens of thousands of cells.

const between = (from, to, at) => from.map((low, i) => Math.round(low + (to[i] - low) * at));
const scaled = (stops, at) => at < 0.5 ? between(stops[0], stops[1], 2 * at)
                                       : between(stops[1], stops[2], 2 * at - 1);
const css = ([red, green, blue]) => `rgb(${red}, ${green}, ${blue})`;

// From red over pale yellow to blue: distinguishable for colour-blind readers.
const SHARES = [[215, 48, 39], [255, 243, 191], [69, 117, 180]];
const SHADES = [[247, 251, 255], [107, 174, 214], [8, 48, 107]];

// Relative luminance as in WCAG 2, and the better of black and white on it.
function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
const inkOn = (rgb) => luminance(rgb) > 0.179 ? "#000" : "#fff";

// cells[row][column] is {share, text, small, title} or null.
function heatTable(corner, columns, rows, cells) {
  const line = (name, of) => element("tr", {}, element("th", {}, name), ...of.map((cell) => {
    if (cell === null) return element("td", {}, "-");
    const rgb = scaled(SHARES, cell.share);
    const style = `background: ${css(rgb)}; color: ${inkOn(rgb)}`;
    return element("td", {style, title: cell.title}, cell.text,
        cell.small ? element("small", {}, cell.small) : null);
  }));
  return element("div", {className: "wide"}, element("table", {className: "heat"},
      element("thead", {}, element("tr", {}, ...[corner, ...columns].map(
          (name) => element("th", {}, name)))),
      element("tbody", {}, ...rows.map((name, i) => line(name, cells[i])))));
}

// values[row][column] from 0 to `top`, with the names of the first and last row and column.
function heatPicture(label, values, top, rowName, columnName) {
  const height = values.length, width = values[0].length;
  const canvas = element("canvas", {width, height, role: "img", ariaLabel: label,
                                    style: `height: ${Math.min(Math.max(4 * height, 60), 256)}px`});
  const context = canvas.getContext("2d"), picture = context.createImageData(width, height);
  values.flat().forEach((value, i) =>
      picture.data.set([...scaled(SHADES, Math.min(1, value / top)), 255], 4 * i));
  context.putImageData(picture, 0, 0);
  canvas.onmousemove = ({offsetX, offsetY}) => {
    const row = Math.min(height - 1, Math.floor(offsetY / canvas.clientHeight * height));
    const column = Math.min(width - 1, Math.floor(offsetX / canvas.clientWidth * width));
    canvas.title = `${rowName} ${row}, ${columnName} ${column}: ${values[row][column].toFixed(3)}`;
  };
  const ends = (className, name, last) => element("div", {className},
      element("span", {}, `${name} 0`), element("span", {}, `${last}`));
  return element("div", {className: "map"}, ends("side", rowName, height - 1), canvas,
      ends("foot", columnName, width - 1));
}

const heatScale = (label, top) => {
  const style = `background: linear-gradient(to right, ${SHADES.map(css).join(", ")})`;
  return element("p", {className: "scale"}, `${label} 0`, element("span", {style}), top.toFixed(2));
};
