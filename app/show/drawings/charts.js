// Draws the figures of app/show/drawings/charts.py with plotly.js, in the colours of the page.
"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The outline of each bar, which shows where the next one begins: none where little of the bar would be left.
function outlines(figure, width) {
  const begin = (trace, k) => { const base = Array.isArray(trace.base) ? trace.base[k] : trace.base || 0; return typeof base === "string" ? Date.parse(base) : base; };
  let low = Infinity, high = -Infinity;
  for (const trace of figure.data) if (trace.type === "bar") trace.x.forEach((length, k) => {
    low = Math.min(low, begin(trace, k), begin(trace, k) + length); high = Math.max(high, begin(trace, k), begin(trace, k) + length);
  });
  return trace => trace.x.map(length => Math.abs(length) / (high - low) * width < 6 ? 0 : 1);
}

// Charts carry the trials' colours; everything else comes from the page's own, light or dark.
function draw(place, figure) {
  if (!figure) { place.innerHTML = '<p class="none">Nothing to draw yet.</p>'; place.style.minHeight = 0; return; }
  if (!place.classList.contains("js-plotly-plot")) { place.replaceChildren(); place.style.minHeight = ""; }
  const ink = css("--ink"), soft = css("--soft"), grid = css("--grid"), card = css("--card");
  const axis = given => Object.assign({gridcolor: grid, linecolor: css("--rule"), zeroline: false, tickfont: {color: soft}, ticks: "", automargin: true}, given,
    given && given.title ? {title: {text: given.title.text, font: {size: 13, color: soft}, standoff: 12}} : {});
  const layout = Object.assign({}, figure.layout, {
    xaxis: axis(figure.layout.xaxis), yaxis: axis(figure.layout.yaxis),
    font: {family: css("--sans"), size: 12.5, color: ink},
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    // On the right there is room for half a number of the axis: if one made more, all would be drawn twice.
    margin: place.dataset.figure === "parallel" ? {l: 70, r: 60, t: 56, b: 24} : {l: 62, r: 32, t: 30, b: 48},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: css("--rule"), activecolor: css("--accent")},
    hoverlabel: {bgcolor: card, bordercolor: css("--rule"), font: {family: css("--sans"), size: 12.5, color: ink}, align: "left"}});
  const outline = outlines(figure, place.clientWidth);
  const traces = figure.data.map(trace => {
    trace = structuredClone(trace);
    if (trace.line && trace.line.color === "ink") trace.line.color = ink;
    if (trace.mode === "markers") trace.marker.line = {width: 1, color: card};
    if (trace.type === "bar") { trace.marker.line = {width: outline(trace), color: card}; trace.insidetextfont = {size: 11}; }
    if (trace.type === "parcoords") { trace.labelfont = {color: ink, size: 13}; trace.tickfont = {color: soft, size: 11.5}; trace.rangefont = {color: "rgba(0,0,0,0)", size: 1};
      trace.unselected = {line: {color: css("--faint"), opacity: .12}}; }
    return trace;
  });
  Plotly.react(place, traces, layout, {responsive: true, displaylogo: false, displayModeBar: place.dataset.figure === "parallel" ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]});
}
