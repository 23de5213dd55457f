"""The style of the report's page: one column, dark on light or light on dark, for screen and paper."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff;
  --wash: #f6f8fa; --kept: #1f5fa8; --broken: #b3261e; --wait: #9db9d9; --unseen: #8c959f; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --line: #3a424c; --paper: #0f1419; --wash: #181f27;
    --kept: #6ca6ee; --broken: #ff7b72; --wait: #35527a; --unseen: #6e7681; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1.25rem 3rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 1.25rem 0 .25rem; }
p { margin: .35rem 0; max-width: 46rem; }
code { font: .87em ui-monospace, "DejaVu Sans Mono", Menlo, monospace; overflow-wrap: anywhere; }
.soft, figcaption, summary { color: var(--soft); font-size: .87rem; }
summary { cursor: pointer; }

.identity { display: flex; flex-wrap: wrap; gap: .1rem 1.5rem; margin: .25rem 0 .75rem; font-size: .87rem; }
.identity div { display: flex; gap: .4rem; min-width: 0; }
.identity dt { color: var(--soft); }
.identity dd { margin: 0; overflow-wrap: anywhere; }
.verdict { display: inline-block; margin: .25rem 0 1rem; padding: .4rem .7rem; border-left: 5px solid;
  background: var(--wash); font-weight: 600; }
.verdict.kept { border-color: #1a7f37; }
.verdict.broken { border-color: var(--broken); }
.verdict.unread { border-color: #9a6700; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: .75rem; }
.tile { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.tile.broken b, .finding b, .bar.broken { color: var(--broken); }
.finding { margin: .9rem 0 0; }
.cause { border-left: 3px solid var(--ink); padding: .1rem 0 .1rem .8rem; margin: .8rem 0; }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; margin: .3rem 0 .5rem; }
table, .plot, .tile, .bars { font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .7rem .22rem 0; border-bottom: 1px solid var(--wash); text-align: right;
  white-space: nowrap; }
th { color: var(--soft); border-bottom-color: var(--line); }
th:first-child, td:first-child { text-align: left; }
td.words { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; max-width: 30rem;
  text-align: left; }

figure { margin: 1rem 0 1.5rem; }
.plot { display: grid; grid-template: auto 1.3rem / 3.6rem minmax(0, 1fr); margin-top: .75rem; }
.plot .y, .plot .x { position: relative; color: var(--soft); font-size: .75rem; }
.plot .x { grid-column: 2; }
.plot span { position: absolute; white-space: nowrap; }
.plot .y span { right: .4rem; transform: translateY(-50%); }
.plot .x span { top: .15rem; transform: translateX(-50%); }
.plot svg { display: block; width: 100%; overflow: visible; background: var(--wash); }
.grid { stroke: var(--line); }
.bound { stroke: var(--ink); stroke-width: 1.25; stroke-dasharray: 6 4; }
.kept { fill: var(--kept); }
.broken { fill: var(--broken); }
.wait { fill: var(--wait); }
.unseen { fill: var(--unseen); }
.mark { fill: var(--ink); }
.area { fill: var(--wait); stroke: var(--kept); vector-effect: non-scaling-stroke; }
.node { fill: var(--wait); stroke: var(--paper); }
text.words { fill: var(--ink); font-size: .75rem; text-anchor: middle; dominant-baseline: central; }
.seen, .plan { fill: none; stroke: var(--kept); stroke-width: 2; vector-effect: non-scaling-stroke; }
.plan { stroke: var(--ink); stroke-width: 1.25; stroke-dasharray: 6 4; }
.band { fill: var(--ink); opacity: .08; }
.lane { fill: var(--soft); }
.item { white-space: nowrap; margin-right: 1rem; }
.key { display: inline-block; width: .75rem; height: .75rem; margin-right: .35rem; background: var(--kept); }
.key.broken { background: var(--broken); }
.key.unseen { background: var(--unseen); }
.key.wait { background: var(--wait); }
.key.dash { height: 0; width: 1.1rem; background: none; border-top: 2px dashed var(--ink);
  vertical-align: .25rem; }

.bars { display: grid; grid-template-columns: max-content minmax(4rem, 1fr); gap: .25rem .8rem;
  align-items: center; font-size: .87rem; margin: .5rem 0; }
.bars > span { text-align: right; }
.bar { display: flex; align-items: center; gap: .5rem; white-space: nowrap; }
.bar i { height: .9rem; min-width: 2px; background: var(--kept); }
.bar.broken i { background: var(--broken); }

@media (max-width: 34rem) {
  body { padding: 1rem .8rem 2rem; }
  .plot { grid-template-columns: 3.1rem minmax(0, 1fr); }
  .bars { grid-template-columns: minmax(0, 1fr); gap: .1rem; }
  .bars > span { text-align: left; margin-top: .35rem; }
}
@media print {
  @page { margin: 14mm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 10.5pt; padding: 0; max-width: none; }
  h2, h3 { break-after: avoid; }
  figure, section, .tile, .cause, .finding, tr { break-inside: avoid; }
  .scroll { overflow: visible; }
}
"""
