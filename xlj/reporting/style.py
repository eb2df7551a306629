"""The style of a report. It names no font and no file that a browser would have to fetch."""

_COLOURS = "#3b82c4 #e8742c #2f9e61 #c9423f #8b63c9 #b0850f #12969e #d6539c #7a8b2a #7f7f8c".split()
"""Readable on white and on black."""
_DASHES = ("none", "6 3", "2 2", "8 3 2 3")

_PAGE = """
:root { color-scheme: light dark; --ink: #1c1d21; --soft: #6a6d78; --rule: #d9dbe2;
  --ground: #fff; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e7eb; --soft: #9ea2ae; --rule: #3a3d47;
  --ground: #17181c; --card: #1f2126; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(.8rem, 3vw, 3rem) 4rem; max-width: 110rem;
  background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; padding-top: .6rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: .95rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
p { margin: .2rem 0 .8rem; color: var(--soft); }
ul { margin: 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
summary { cursor: pointer; margin: 1rem 0 .8rem; }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; padding: .8rem; background: var(--card); border-radius: 8px; min-width: 0; }
figure.broad { grid-column: 1 / -1; }
.wide { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 20rem; max-width: 46rem; height: auto;
  font-size: 11px; }
svg[style] { max-width: none; }
svg text { fill: var(--soft); }
svg .across { text-anchor: middle; }
svg .up { text-anchor: end; }
svg line { stroke: var(--rule); }
polyline { fill: none; stroke: var(--colour); stroke-width: 2; stroke-dasharray: var(--dash);
  stroke-linejoin: round; }
.faint polyline { stroke-width: 1.2; opacity: .6; }
circle, rect { fill: var(--colour); }
circle:hover, rect:hover { stroke: var(--ink); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap;
  font-size: .88rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--rule); }
th:first-child { text-align: left; }
thead th { color: var(--soft); font-weight: 500; vertical-align: bottom; white-space: normal;
  overflow-wrap: break-word; min-width: 4rem; max-width: 9rem; }
tbody th { font-weight: 500; position: sticky; left: 0; background: var(--ground); }
table:has(td.text) th { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; max-width: 24rem;
  text-align: left; }
label { display: inline-flex; gap: .5rem; align-items: center; cursor: pointer; }
input { accent-color: var(--colour); margin: 0; }
label svg { width: 26px; min-width: 0; flex: none; }
"""


def style(runs: int) -> str:
    """The page's style, with a colour for each run, and how to hide it.

    From the eleventh run on colours come again, dashed.
    """
    rules = [_PAGE]
    for run in range(runs):
        again, place = divmod(run, len(_COLOURS))
        colour, dash = _COLOURS[place], _DASHES[again % len(_DASHES)]
        rules.append(f".run{run}, .of{run} {{ --colour: {colour}; --dash: {dash}; }}")
        rules.append(f"body:has(#show{run}:not(:checked)) .run{run} {{ display: none; }}")
    return "\n".join(rules)
