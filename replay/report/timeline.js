"use strict";
// The chart: what ran beside, the waves, rows of like pods and single pods over time, and the whole shutdown small
// above the part on view. Only rows in sight are drawn. Times are microseconds since the signal.
//
// ``page`` is what page.js shares: elements, data, texts and the clock; ``changed`` is called when the view is another.
function makeTimeline({ $, make, fill, draw, data, pods, SIGNS, clock, counted, soon, story, tell, choose, changed }) {
  // Heights in pixels. A pod's row is as low as lets all stand on one screen, but never lower than ROW_MIN, which can
  // still be seen and pointed at; where even that is too much, rows can be read and the chart scrolls. Below NAMED_MIN
  // not every row has room for its name. Of more pods than WHOLE_MAX those that ended well stand in one row a wave, too.
  const HEAD = 20, HEAD_LOW = 16, ROW = 22, READABLE = 18, ROW_MIN = 4, NAMED_MIN = 11, AXIS = 46, MAP = 36, ROOM_MIN = 320;
  const WHOLE_MAX = 150, PRINTED_MAX = 26, PRINTED_ROW = 12, PRINTED_WIDTH = 860, SPAN_MIN = 1000, SIDE_MIN = 70, GRIP = 7;
  const BAR = 50, BELOW = 8;
  const chart = $("chart"), axis = $("axis"), lanes = $("lanes"), map = $("map");
  const holders = new Set(data.holders);
  const deadline = data.lines.find(([name]) => name === "deadline")?.[1] ?? 0;
  const end = Math.max(data.last, 1000, ...data.lines.filter(([name]) => name !== "deadline").map(([, at]) => at));
  const whole = { from: -end * 0.01, to: Math.max(end, deadline <= end * 1.5 ? deadline : 0) * 1.03 };
  const view = { ...whole, lines: [], height: 0, active: "", width: 900, label: 230, row: ROW, sort: "outcome", rows: "", printing: false };
  const opened = new Map();
  const late = soon(paint);

  // --- rows ----------------------------------------------------------------------------------------
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const startOf = (pod) => pod.began ?? pod.at ?? data.last + 1, endOf = (pod) => pod.ended ?? data.last;
  const ORDERS = {
    outcome: (a, b) => a.index - b.index,
    time: (a, b) => startOf(a) - startOf(b) || endOf(a) - endOf(b) || a.index - b.index,
    took: (a, b) => endOf(b) - startOf(b) - (endOf(a) - startOf(a)) || a.index - b.index,
    name: (a, b) => compare(a.label, b.label) || a.index - b.index,
  };
  const ranks = {};
  const rankOf = (sort) => (ranks[sort] ??= pods.toSorted(ORDERS[sort]).reduce((places, pod, at) => { places[pod.index] = at; return places; }, []));
  const folds = (line) => ["wave", "group", "beside"].includes(line?.kind);
  const isOpen = (line) => opened.get(line.key) ?? line.kind === "wave";
  /** Like pods have the same kind; one that is like no other has its own. */
  const together = (pod) => view.rows === "alike" || (view.rows !== "single" && (pod.alike >= 0 || pods.length > WHOLE_MAX));
  const kindOf = (pod) => (together(pod) ? `g${pod.wave}.${pod.fate}.${pod.alike}` : `p${pod.index}`);

  function layOut(shown) {
    view.shown = shown;
    view.lines = linesOf(shown, isOpen);
    if (!view.lines.some((line) => line.key === view.active)) view.active = "";
    measure();
    late();
  }
  function linesOf(shown, opens) {
    const rank = rankOf(view.sort), lines = [], members = new Map([...data.waves.map((wave) => [wave[0], []]), [-1, []]]);
    for (const pod of shown.toSorted((a, b) => rank[a.index] - rank[b.index])) (members.get(pod.wave) ?? members.get(-1)).push(pod);
    if (data.beside.length) lines.push({ kind: "beside", key: "b", title: "Beside the waves", pods: [] });
    if (data.beside.length && opens(lines[0])) lines.push(...data.beside.map((span, at) => ({ kind: "order", key: `b${at}`, span, title: span[0], pods: [] })));
    for (const [index, inside] of members) {
      const wave = data.waves.find((each) => each[0] === index);
      if (!inside.length && (!wave || shown !== pods)) continue;
      const head = { kind: "wave", key: `w${index}`, wave, pods: inside, title: wave ? `Wave ${index} · ${wave[5]}, ${counted(inside.length, "pod")}` : `In no wave · ${counted(inside.length, "pod")}` };
      lines.push(head);
      if (opens(head)) lines.push(...within(inside, wave, opens));
    }
    return lines;
  }
  function within(inside, wave, opens) {
    const kinds = new Map(), lines = [];
    for (const pod of inside) kinds.has(kindOf(pod)) ? kinds.get(kindOf(pod)).push(pod) : kinds.set(kindOf(pod), [pod]);
    for (const [key, alike] of kinds) {
      const single = (pod, depth) => ({ kind: "pod", key: `p${pod.index}`, pod, wave, pods: [pod], title: pod.label, depth });
      if (alike.length === 1) { lines.push(single(alike[0], 1)); continue; }
      const group = { kind: "group", key, wave, pods: alike, fate: alike[0].fate, title: `${alike.length} ${alike[0].fate}`, why: data.alike[alike[0].alike] ?? "" };
      lines.push(group);
      if (opens(group)) lines.push(...alike.map((pod) => single(pod, 2)));
    }
    return lines;
  }
  /** Heights for the window as it is, and where each row begins. */
  function measure() {
    const singles = view.lines.filter((line) => line.pod), heads = view.lines.length - singles.length, worst = singles.filter(telling).length;
    const room = innerHeight - BAR - BELOW - (chart.getBoundingClientRect().top - $("timeline").getBoundingClientRect().top) - AXIS - 4;
    const each = (left, among) => Math.min(ROW, Math.floor((4 * left) / Math.max(1, among)) / 4);
    const even = each(room - HEAD * heads, singles.length), low = each(room - HEAD_LOW * heads, singles.length);
    const others = each(room - HEAD_LOW * heads - NAMED_MIN * worst, singles.length - worst);
    if (view.rows === "tall" || chart.clientWidth < 560) stack(ROW, HEAD);
    else if (even >= NAMED_MIN) stack(even, HEAD);
    else if (others >= ROW_MIN) stack(others, HEAD_LOW, NAMED_MIN);
    else stack(low >= ROW_MIN ? low : READABLE, low >= ROW_MIN ? HEAD_LOW : HEAD);
    chart.style.maxHeight = `${Math.max(room + AXIS + 4, ROOM_MIN)}px`;
    $("rows").style.height = `${view.height}px`;
  }
  /** A pod that somebody wants to know the name of. */
  const telling = (line) => line.pod.fate !== "graceful" || holders.has(line.pod.index);
  /** Where each row begins; rows of those that matter may be higher than others. */
  function stack(row, head, least = 0) {
    view.height = 0;
    for (const line of view.lines) {
      line.y = view.height;
      line.h = !line.pod ? head : telling(line) ? Math.max(row, least) : row;
      view.height += line.h;
    }
    view.row = row;
  }

  // --- drawing -------------------------------------------------------------------------------------
  function paint() {
    const { printing } = view;
    view.width = printing ? PRINTED_WIDTH : chart.clientWidth;
    view.label = view.width < 560 ? 110 : 240;
    const top = printing ? 0 : chart.scrollTop - AXIS, bottom = printing ? view.height : chart.scrollTop + chart.clientHeight;
    const lines = view.lines.filter((line) => line.y + line.h > top && line.y < bottom), first = lines[0]?.y ?? 0, last = lines.at(-1);
    size(axis, view.width, AXIS);
    size(lanes, view.width, last ? last.y + last.h - first : 0);
    lanes.style.top = printing ? "0" : `${first}px`;
    paintAxis();
    paintLanes(lines, first);
    paintMap();
    $("range").textContent = `${clock.say(Math.round(Math.max(view.from, 0)), true)} to ${clock.say(Math.round(view.to))}`;
  }
  function size(svg, width, height) {
    fill(svg, { width, height, viewBox: `0 0 ${width} ${height}` }, []);
    svg.replaceChildren();
  }
  const plotWidth = () => view.width - view.label - 10;
  const x = (us) => ((us - view.from) / (view.to - view.from)) * plotWidth();
  const part = (svg, left, width, height) => draw(svg, "svg", { x: left, width, height, overflow: "hidden" });
  const upright = (plot, at, y, height, kind) => draw(plot, "line", { x1: x(at), x2: x(at), y1: y, y2: y + height, class: kind });

  const ruler = document.createElement("canvas").getContext("2d");
  /** The text, or as much of it as has room, and an ellipsis. */
  function fitted(text, room, pixels = 12) {
    ruler.font = `${pixels}px ${getComputedStyle(chart).fontFamily}`;
    if (ruler.measureText(text).width <= room) return text;
    let low = 0, high = text.length;
    while (low < high) {
      const at = (low + high + 1) >> 1;
      if (ruler.measureText(`${text.slice(0, at)}…`).width <= room) low = at; else high = at - 1;
    }
    return `${text.slice(0, low)}…`;
  }

  function paintAxis() {
    const plot = part(axis, view.label, plotWidth() + 10, AXIS), ends = [-1e9, -1e9];
    for (const [name, at] of data.lines.toSorted((a, b) => a[1] - b[1])) {
      const right = x(at) > plotWidth() - 60, level = x(at) - (right ? name.length * 7 : 0) < ends[0] ? 1 : 0;
      draw(plot, "line", { x1: x(at), x2: x(at), y1: level * 13 + 2, y2: AXIS, class: `rule ${name}` });
      draw(plot, "text", { x: x(at) + (right ? -4 : 4), y: level * 13 + 12, "text-anchor": right ? "end" : "start" }, name);
      ends[level] = x(at) + (right ? 0 : name.length * 7 + 8);
    }
    for (const at of clock.ticks(view.from, view.to, Math.max(2, plotWidth() / 100))) {
      draw(plot, "line", { x1: x(at), x2: x(at), y1: AXIS - 5, y2: AXIS, class: "rule" });
      const anchor = x(at) < 24 ? "start" : x(at) > plotWidth() - 24 ? "end" : "middle";
      draw(plot, "text", { x: x(at), y: AXIS - 8, "text-anchor": anchor, class: "soft" }, clock.tick(at));
    }
    if (deadline > whole.to) draw(axis, "text", { x: 8, y: 13, class: "soft" }, `deadline ${clock.say(deadline)}`);
  }

  function paintLanes(lines, top) {
    const height = view.height, hatch = draw(draw(lanes, "defs"), "pattern",
      { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    draw(hatch, "rect", { width: 2.5, height: 6, fill: "var(--card)", opacity: 0.55 });
    for (const line of lines) {
      const y = line.y - top;
      if (line.kind === "wave") draw(lanes, "rect", { y, width: view.width, height: line.h, class: "lane" });
      if (line.key === view.active) draw(lanes, "rect", { x: 1, y: y + 0.5, width: view.width - 2, height: line.h - 1, class: "on" });
    }
    const names = part(lanes, 8, view.label - 14, height), plot = part(lanes, view.label, plotWidth() + 10, height);
    for (const at of clock.ticks(view.from, view.to, Math.max(2, plotWidth() / 100))) draw(plot, "line", { x1: x(at), x2: x(at), y1: 0, y2: height, class: "grid" });
    for (const [name, at] of data.lines) draw(plot, "line", { x1: x(at), x2: x(at), y1: 0, y2: height, class: `rule ${name}` });
    const named = new Set(withNames(lines));
    for (const line of lines) {
      const y = line.y - top, middle = y + line.h / 2;
      if (line.pods.length && line.kind !== "wave" && line.pods.some((pod) => holders.has(pod.index)))
        draw(names, "path", { d: `M1 ${middle - 4}l6 4l-6 4z`, class: "holder" });
      if (named.has(line)) paintName(names, line, middle);
      (line.pod ? podBar : line.kind === "group" ? groupBar : line.kind === "wave" ? waveBar : besideBar)(plot, line, y);
      draw(draw(lanes, "rect", { y, width: view.width, height: line.h, class: "hit" }), "title", {}, hint(line));
    }
  }
  /** Where rows are lower than a name, those of the worst come first, and no name stands on another. */
  function withNames(lines) {
    if (view.row >= NAMED_MIN) return lines;
    const weight = (line) => (!line.pod ? 0 : line.key === view.active ? 1 : holders.has(line.pod.index) ? 2 : line.pod.fate !== "graceful" ? 3 : 4);
    const taken = [];
    return lines.toSorted((a, b) => weight(a) - weight(b)).filter((line) => {
      const middle = line.y + line.h / 2, free = !line.pod || taken.every(([y, room]) => Math.abs(y - middle) >= room);
      if (free) taken.push([middle, line.pod ? NAMED_MIN - 1 : NAMED_MIN + 1]);
      return free;
    });
  }
  function paintName(names, line, middle) {
    const small = line.pod && line.h < 15, pixels = small ? 10 : 12, left = line.kind === "pod" || line.kind === "order" ? 4 + 10 * (line.depth ?? 1) : line.kind === "group" ? 10 : 0;
    const sign = folds(line) ? (isOpen(line) ? "▾ " : "▸ ") : "";
    const kind = line.kind === "wave" ? "head" : line.kind === "pod" || line.kind === "group" ? "" : "soft";
    draw(names, "text", { x: left, y: middle + (small ? 3.5 : 4.5), class: `${kind} ${small ? "small" : ""}` }, fitted(sign + line.title, view.label - 16 - left, pixels));
  }
  const bar = (plot, from, to, y, height, kind) => draw(plot, "rect",
    { x: x(from), y, width: Math.max(1.5, x(to ?? data.last) - x(from)), height, class: kind, rx: height > 6 ? 1 : 0 });
  function besideBar(plot, line, y) {
    const spans = line.span ? [line.span] : data.beside;
    for (const [, times] of spans) for (const [began, ended] of times) bar(plot, began, ended, y + line.h / 2 - 3, 6, "besidebar");
  }
  /** How many of the pods had not ended, over time: as high as their share of all of them. */
  function silhouette(plot, members, y, height, kinds) {
    const steps = new Map();
    for (const pod of members) if (pod.began !== null) for (const [at, by] of [[pod.began, 1], [Math.max(endOf(pod), pod.began), -1]]) steps.set(at, (steps.get(at) ?? 0) + by);
    let count = 0, path = "";
    const base = y + height, lastAt = Math.max(...steps.keys());
    for (const [at, by] of [...steps].sort((a, b) => a[0] - b[0])) {
      path += `${path ? "H" : `M${x(at)} ${base}H`}${x(at)}`;
      count += by;
      path += `V${base - (count / members.length) * height}`;
    }
    if (!path) return;
    // The line below is there for one pod of hundreds, or for a moment, which would be too thin to be seen.
    const first = x(Math.min(...steps.keys())), ground = `M${first} ${base - 1}H${Math.max(x(lastAt), first + 1.5)}V${base}H${first}z`;
    for (const kind of kinds) draw(plot, "path", { d: `${path}V${base}z${ground}`, ...kind });
  }
  /** Text on the side of a bar that has more room. */
  function aside(plot, from, to, middle, text) {
    const left = Math.min(plotWidth(), Math.max(0, x(from))), right = Math.max(0, Math.min(plotWidth(), x(to))), after = plotWidth() - right >= left;
    const room = (after ? plotWidth() - right : left) - 16, off = x(from) > plotWidth() ? [text, "→"] : x(to) < 0 ? ["←", text] : [text];
    if (!text || room < SIDE_MIN) return;
    draw(plot, "text", { x: after ? right + 10 : left - 6, y: middle + 4.5, "text-anchor": after ? "start" : "end", class: "soft aside" }, fitted(off.join(" "), room));
  }
  function waveBar(plot, { wave, pods: inside, h }, y) {
    if (!wave) { for (const pod of inside) fateSign(plot, pod, y, h); return; }
    const [, , began, ended, bound] = wave;
    if (began === null) return;
    bar(plot, began, bound, y + 4, h - 8, "bound");
    bar(plot, began, ended, y + h - 5, 2, "wavebar");
    silhouette(plot, inside, y + 4, h - 8, [{ class: "wavebar" }]);
    if (bound !== null) upright(plot, bound, y + 2, h - 4, "limit");
    aside(plot, began, Math.max(ended ?? data.last, bound ?? 0, ...inside.filter((pod) => pod.began !== null).map(endOf)), y + h / 2, tally(inside));
  }
  function groupBar(plot, { pods: alike, fate, wave, why, h }, y) {
    const began = alike.filter((pod) => pod.began !== null), hatch = fate === "graceful" ? [] : [{ fill: "url(#hatch)" }];
    if (!began.length) { for (const pod of alike) fateSign(plot, pod, y, h); }
    else silhouette(plot, alike, y + 4, h - 8, [{ class: `f-${fate}` }, ...hatch]);
    const killed = new Map(alike.flatMap((pod) => pod.kills.map((at) => [Math.round(x(at)), at])));
    for (const at of killed.values()) draw(plot, "path", { d: `M${x(at) - 3} ${y + h / 2 - 3}l6 6m0 -6l-6 6`, class: "kill" });
    if (wave?.[4] != null) upright(plot, wave[4], y, h, "rule deadline");
    const edge = (pick, of) => pick(...alike.map(of));
    aside(plot, edge(Math.min, startOf), edge(Math.max, (pod) => (pod.began === null ? pod.at ?? 0 : endOf(pod))), y + h / 2, why);
  }
  /** Of a pod that was never asked to end: its sign where that was decided; where no moment is known, at the end. */
  function fateSign(plot, pod, y, height) {
    if (pod.began !== null) return;
    const at = pod.at ?? null, middle = y + height / 2 + 4;
    if (at === null) draw(plot, "text", { x: plotWidth() + 4, y: middle, "text-anchor": "end", class: "soft" }, `${SIGNS[pod.fate]} ${pod.fate}`);
    else draw(plot, "text", { x: x(at), y: middle, "text-anchor": "middle", class: `sign t-${pod.fate}` }, SIGNS[pod.fate]);
  }
  function podBar(plot, line, y) {
    const { pod, wave, h } = line, pad = h >= 18 ? 4 : h >= NAMED_MIN ? 2 : h / 8, low = h < NAMED_MIN, height = h - 2 * pad, middle = y + h / 2;
    if (pod.began === null) {
      fateSign(plot, pod, y, h);
      if (pod.at !== null && !low) aside(plot, pod.at, pod.at, middle, `${pod.fate} ${clock.say(pod.at)}`);
      return;
    }
    if (pod.bound !== null && !low) bar(plot, pod.began, pod.bound, y + pad, height, "bound");
    bar(plot, pod.began, pod.ended, y + pad, height, `f-${pod.fate}`);
    if (pod.fate !== "graceful") bar(plot, pod.began, pod.ended, y + pad, height, "").setAttribute("fill", "url(#hatch)");
    for (const [began, ended] of pod.hooks) bar(plot, began, ended, middle - height / 6, height / 3, "hook");
    for (const at of pod.signals) upright(plot, at, y + pad / 2, h - pad, "mark");
    const arm = low ? h / 2 : 4;
    for (const at of pod.kills) draw(plot, "path", { d: `M${x(at) - arm} ${middle - arm}l${2 * arm} ${2 * arm}m0 ${-2 * arm}l${-2 * arm} ${2 * arm}`, class: "kill" });
    if (pod.hurried !== null) draw(plot, "path", { d: `M${x(pod.hurried) - 5} ${middle - 4}l4 4l-4 4m5 -8l4 4l-4 4`, class: "mark" });
    if (wave?.[4] != null) upright(plot, wave[4], y, h, "rule deadline");
    const after = x(endOf(pod)) + 5;
    if (!low && plotWidth() - after > 16) draw(plot, "text", { x: Math.max(after, 2), y: middle + 4, class: "soft" }, SIGNS[pod.fate]);
  }
  function tally(members) {
    const counts = data.fates.map((fate) => [fate, members.filter((pod) => pod.fate === fate).length]).filter(([, count]) => count);
    return counts.map(([fate, count]) => `${count} ${fate}`).join(", ");
  }
  const NAMES_MAX = 12;
  function hint(line) {
    if (line.pod) return story(line.pod);
    if (!line.pods.length) return line.title;
    const names = line.kind === "group" ? `: ${line.pods.slice(0, NAMES_MAX).map((pod) => pod.label).join(", ")}${line.pods.length > NAMES_MAX ? ", …" : ""}` : `: ${tally(line.pods)}`;
    return `${line.title}${line.why ? `: ${line.why}` : ""}${names}`;
  }

  // --- the whole, small ------------------------------------------------------------------------------
  const onMap = (us) => ((us - whole.from) / (whole.to - whole.from)) * plotWidth();
  let mapped = "";
  function paintMap() {
    const wanted = `${view.width}`;
    if (mapped !== wanted) {
      size(map, view.width, MAP);
      mapped = wanted;
      draw(map, "text", { x: 8, y: MAP / 2 + 4, class: "soft" }, view.label > 150 ? "Whole shutdown" : "Whole");
      const plot = draw(map, "svg", { x: view.label, width: plotWidth() + 1, height: MAP });
      const paths = new Map(), each = (MAP - 4) / Math.max(1, pods.length), ordered = pods.toSorted((a, b) => a.wave - b.wave || a.index - b.index);
      ordered.forEach((pod, at) => {
        const from = onMap(pod.began ?? pod.at ?? data.last), to = pod.began === null ? from : onMap(endOf(pod));
        paths.set(pod.fate, `${paths.get(pod.fate) ?? ""}M${from.toFixed(1)} ${(2 + at * each).toFixed(2)}h${Math.max(1, to - from).toFixed(1)}v${Math.max(0.5, each).toFixed(2)}H${from.toFixed(1)}z`);
      });
      for (const [fate, d] of paths) draw(plot, "path", { d, class: `f-${fate}` });
      for (const [name, at] of data.lines) draw(plot, "line", { x1: onMap(at), x2: onMap(at), y1: 0, y2: MAP, class: `rule ${name}` });
      for (const id of ["veil-left", "veil-right"]) draw(plot, "rect", { id, height: MAP, class: "veil" });
      draw(plot, "rect", { id: "brush", y: 1, height: MAP - 2, class: "brush", rx: 2 });
    }
    const left = onMap(view.from), right = onMap(view.to);
    fill($("veil-left"), { x: 0, width: left }, []);
    fill($("veil-right"), { x: right, width: Math.max(0, plotWidth() - right) }, []);
    fill($("brush"), { x: left + 1, width: Math.max(2, right - left - 2) }, []);
    const centre = (100 * ((view.from + view.to) / 2 - whole.from)) / (whole.to - whole.from);
    fill(map, { "aria-valuenow": Math.round(centre), "aria-valuetext": `${clock.say(Math.round(Math.max(view.from, 0)))} to ${clock.say(Math.round(view.to))}` }, []);
  }
  /** An edge of the part on view is drawn, the part is moved, or a new one is drawn elsewhere. */
  function brush() {
    let held = null;
    const timeAt = (event) => whole.from + (Math.min(plotWidth(), Math.max(0, event.clientX - map.getBoundingClientRect().left - view.label)) / plotWidth()) * (whole.to - whole.from);
    map.addEventListener("pointerdown", (event) => {
      const at = timeAt(event), grip = (GRIP / plotWidth()) * (whole.to - whole.from);
      const zoomed = view.to - view.from < (whole.to - whole.from) * 0.999;
      if (event.button) return;
      if (zoomed && Math.abs(at - view.from) < grip) held = (now) => span(now, view.to);
      else if (zoomed && Math.abs(at - view.to) < grip) held = (now) => span(view.from, now);
      else if (zoomed && at > view.from && at < view.to) { const by = at - view.from, length = view.to - view.from; held = (now) => look(now - by, now - by + length); }
      else held = (now) => { if (Math.abs(now - at) > grip / 2) span(at, now); };
      map.setPointerCapture(event.pointerId);
    });
    map.addEventListener("pointermove", (event) => held?.(timeAt(event)));
    for (const name of ["pointerup", "pointercancel"]) map.addEventListener(name, () => { held = null; });
    map.addEventListener("dblclick", () => look(whole.from, whole.to));
  }
  const span = (a, b) => look(Math.min(a, b), Math.max(a, b));

  // --- hands -----------------------------------------------------------------------------------------
  function look(from, to) {
    const length = Math.min(Math.max(to - from, SPAN_MIN), whole.to - whole.from);
    view.from = Math.min(Math.max(from, whole.from), whole.to - length);
    view.to = view.from + length;
    late();
    changed();
  }
  function zoom(factor, share = 0.5) {
    const at = view.from + (view.to - view.from) * share, length = (view.to - view.from) * factor;
    look(at - length * share, at + length * (1 - share));
  }
  const pan = (share) => { const by = (view.to - view.from) * share; look(view.from + by, view.to + by); };
  const shareOf = (clientX) => Math.min(1, Math.max(0, (clientX - chart.getBoundingClientRect().left - view.label) / plotWidth()));
  const lineOf = (key) => view.lines.find((line) => line.key === key);
  function activate(line) {
    view.active = line?.key ?? "";
    tell(line, line && `${hint(line)}${folds(line) ? `. Enter ${isOpen(line) ? "closes" : "opens"} it.` : ""}`);
    late();
    changed();
  }
  function walk(by) {
    const at = view.lines.findIndex((line) => line.key === view.active);
    const next = view.lines[Math.min(view.lines.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : view.lines.length - 1) : at + by))];
    if (next) { activate(next); reveal(next); }
  }
  function reveal(line) {
    if (line.y < chart.scrollTop) chart.scrollTop = line.y;
    if (line.y + line.h + AXIS > chart.scrollTop + chart.clientHeight) chart.scrollTop = line.y + line.h + AXIS + 2 - chart.clientHeight;
  }
  function toggle(line) {
    if (!folds(line)) return;
    opened.set(line.key, !isOpen(line));
    layOut(view.shown);
    activate(lineOf(line.key));
  }
  /** All waves closed, or all open. */
  function fold(open) {
    for (const line of view.lines) if (line.kind === "wave") opened.set(line.key, open);
    layOut(view.shown);
    activate(lineOf(view.active));
  }
  function hands() {
    const enter = () => { const line = lineOf(view.active); if (line?.pod) choose(line.pod); else toggle(line); };
    const keys = { ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => look(whole.from, whole.to) };
    const rows = { ArrowDown: () => walk(1), ArrowUp: () => walk(-1), PageDown: () => walk(15), PageUp: () => walk(-15),
      Home: () => walk(-1e6), End: () => walk(1e6), Enter: enter, " ": enter, Escape: () => activate(null) };
    for (const [element, its] of [[chart, { ...keys, ...rows }], [map, { ...keys, Home: () => pan(-1e6), End: () => pan(1e6) }]])
      element.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !its[event.key]) return;
        event.preventDefault();
        its[event.key]();
      });
    for (const element of [chart, map]) element.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 200), shareOf(event.clientX));
    }, { passive: false });
    chart.addEventListener("scroll", late);
    $("zoom-in").addEventListener("click", () => zoom(0.6));
    $("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
    $("zoom-all").addEventListener("click", () => look(whole.from, whole.to));
    $("fold").addEventListener("click", () => fold(!view.lines.some((line) => line.kind === "wave" && isOpen(line))));
    pointers();
    brush();
  }
  /** One pointer moves the chart, two zoom it; one that does not move chooses a row, and opens or closes it. */
  function pointers() {
    const down = new Map();
    let moved = 0;
    const spread = () => { const [a, b] = [...down.values()]; return Math.max(20, Math.abs(a - b)); };
    chart.addEventListener("pointerdown", (event) => { if (!event.button) { down.set(event.pointerId, event.clientX); moved = 0; } });
    chart.addEventListener("pointermove", (event) => {
      if (!down.has(event.pointerId)) return;
      const before = down.get(event.pointerId), wide = down.size > 1 ? spread() : 0;
      down.set(event.pointerId, event.clientX);
      moved += Math.abs(event.clientX - before);
      if (down.size > 1) zoom(wide / spread(), shareOf((Math.min(...down.values()) + Math.max(...down.values())) / 2));
      else if (moved > 4) { chart.classList.add("dragging"); pan((before - event.clientX) / plotWidth()); }
    });
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) chart.addEventListener(name, (event) => {
      const clicked = down.delete(event.pointerId) && name === "pointerup" && moved <= 4;
      chart.classList.remove("dragging");
      const y = event.clientY - $("rows").getBoundingClientRect().top, line = view.lines.find((each) => y >= each.y && y < each.y + each.h);
      if (!clicked || !line) return;
      if (line.pod || line.kind === "order") activate(line); else toggle(line);
    });
  }
  // --- a link to what is seen, and paper -----------------------------------------------------------
  const seconds = (us) => String(Math.round(us) / 1e6);
  /** What differs from the view at first, as texts by name. */
  function state() {
    const changedIn = (open) => [...opened].filter(([key, is]) => is === open && open !== key.startsWith("w")).map(([key]) => key).join(",");
    return {
      t: view.from > whole.from || view.to < whole.to ? `${seconds(view.from)},${seconds(view.to)}` : "",
      sort: view.sort === "outcome" ? "" : view.sort, rows: view.rows, closed: changedIn(false), open: changedIn(true),
      at: view.active && !view.active.startsWith("p") ? view.active : "", pod: lineOf(view.active)?.pod ?? null,
    };
  }
  function restore({ t = "", sort = "", rows = "", closed = "", open = "", at = "" }, pod) {
    view.sort = Object.hasOwn(ORDERS, sort) ? sort : "outcome";
    view.rows = ["tall", "alike", "single"].includes(rows) ? rows : "";
    opened.clear();
    for (const [keys, is] of [[closed, false], [open, true]]) for (const key of keys.split(",").filter(Boolean)) opened.set(key, is);
    // A link to a pod shows it, whatever is closed in the same link.
    if (pod) { opened.set(`w${pod.wave}`, true); if (kindOf(pod)[0] === "g") opened.set(kindOf(pod), true); }
    const [from, to] = t.split(",").map((each) => (each.trim() ? Number(each) * 1e6 : NaN));
    const near = (whole.to - whole.from) / 20;
    Object.assign(view, { from: whole.from, to: whole.to, active: pod ? `p${pod.index}` : at });
    if (Number.isFinite(from)) look(Number.isFinite(to) ? from : from - near, Number.isFinite(to) ? to : from + near);
  }
  /** As it stands on paper, until ``false``: like pods in one row, and of single ones the worst. */
  function print(is) {
    const { rows } = view;
    view.printing = is;
    if (!is) { layOut(view.shown); return; }
    view.rows = "alike";
    const lines = linesOf(view.shown, (line) => line.kind === "wave"), singles = lines.filter((line) => line.pod).toSorted((a, b) => a.pod.index - b.pod.index);
    const left = new Set(singles.slice(Math.max(0, PRINTED_MAX - (lines.length - singles.length))));
    view.lines = lines.filter((line) => !left.has(line)).slice(0, PRINTED_MAX);
    view.rows = rows;
    stack(PRINTED_ROW, PRINTED_ROW + 3);
    paint();
  }
  hands();
  return {
    layOut, state, restore, print, late,
    shown: () => { const line = lineOf(view.active); activate(line ?? null); if (line) reveal(line); },
    order: (sort) => { view.sort = sort; layOut(view.shown); changed(); },
    rows: (rows) => { view.rows = rows; layOut(view.shown); changed(); },
    again: () => { mapped = ""; if (!view.printing) measure(); late(); },
  };
}
