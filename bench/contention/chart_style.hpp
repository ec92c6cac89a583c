// How a chart looks, as the style sheets of its SVG: what is common, and the colours on a light and on a dark page. "c"
// is for strokes, "f" for what is filled; 0 is ours, 1 the reference.
#pragma once

namespace contention {

inline constexpr const char* common_style =
    R"(text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.title { font-size: 18px; font-weight: 600; }
.ours { font-weight: 600; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.card, .line, .whisker, .lead { fill: none; }
.line { stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line.ours { stroke-width: 3.5; }
.line.reference { stroke-dasharray: 2 5; }
.whisker { stroke-width: 1.5; opacity: 0.45; }
.lead { stroke-width: 1; opacity: 0.5; }
)";
inline constexpr const char* light_style = R"(.card { fill: #ffffff; stroke: #d0d7de; }
text { fill: #57606a; } .title { fill: #1f2328; }
.grid { stroke: #e7eaed; } .base { stroke: #8c959f; }
.c0 { stroke: #0969da; } .f0 { fill: #0969da; } .c1 { stroke: #57606a; } .f1 { fill: #57606a; }
.c2 { stroke: #bc4c00; } .f2 { fill: #bc4c00; } .c3 { stroke: #1a7f37; } .f3 { fill: #1a7f37; }
.c4 { stroke: #8250df; } .f4 { fill: #8250df; } .c5 { stroke: #bf3989; } .f5 { fill: #bf3989; }
.c6 { stroke: #7d5600; } .f6 { fill: #7d5600; }
)";
inline constexpr const char* dark_style = R"(.card { fill: #0d1117; stroke: #30363d; }
text { fill: #9da7b3; } .title { fill: #f0f6fc; }
.grid { stroke: #21262d; } .base { stroke: #6e7681; }
.c0 { stroke: #58a6ff; } .f0 { fill: #58a6ff; } .c1 { stroke: #9da7b3; } .f1 { fill: #9da7b3; }
.c2 { stroke: #f0883e; } .f2 { fill: #f0883e; } .c3 { stroke: #3fb950; } .f3 { fill: #3fb950; }
.c4 { stroke: #bc8cff; } .f4 { fill: #bc8cff; } .c5 { stroke: #f778ba; } .f5 { fill: #f778ba; }
.c6 { stroke: #d4a72c; } .f6 { fill: #d4a72c; }
)";

}  // namespace contention
