"use strict";
// The page without this script is whole text; with it, it can be searched, sorted and zoomed. No library, no
// network, no storage. Text gets into the page as text only. Times are microseconds since the signal.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const fields = ["label", "wave", "fate", "began", "ended", "bound", "signals", "kills", "hurried", "hooks"];
  const pods = data.pods.map((row, index) => ({ index, ...Object.fromEntries(fields.map((name, at) => [name, row[at]])) }));
  for (const pod of pods) pod.fate = data.fates[pod.fate];
  const holders = new Set(data.holders);
  const rows = [...$("pod-rows").rows];
  const SIGNS = { graceful: "✓", killed: "✕", failed: "!", spared: "○", rejected: "⊘", unknown: "?" };

  // --- small things ------------------------------------------------------------------------------
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (parent, tag, attributes = {}, ...children) =>
    parent.appendChild(fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children));

  /** As everywhere in Ebbtide: 12ms, 5.944s, 1min 2.345s, 1min. */
  function lasted(us) {
    if (us < 1e6) return us >= 1e3 ? `${Math.floor(us / 1e3)}ms` : us ? `${us}µs` : "0";
    const seconds = Math.floor((us % 6e7) / 1e3) / 1e3, minutes = Math.floor(us / 6e7);
    return [minutes ? `${minutes}min` : "", seconds ? `${seconds}s` : ""].filter(Boolean).join(" ");
  }
  const moment = (us) => (us === null ? "–" : us < 0 ? `−${lasted(-us)}` : `+${lasted(us)}`);
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, " ");

  /** Runs ``work`` once before the next frame, however often it is asked for. */
  function soon(work) {
    let asked = false;
    return () => {
      if (!asked) requestAnimationFrame(() => { asked = false; work(); });
      asked = true;
    };
  }

  // --- light and dark ----------------------------------------------------------------------------
  function theme() {
    const root = document.documentElement, button = $("theme"), system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const name = () => { button.textContent = dark() ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
    system.addEventListener("change", name);
    button.hidden = false;
    name();
  }

  // --- which pods: one filter for the timeline and the table ---------------------------------------
  const texts = rows.map((row) => row.textContent.toLowerCase());
  let shown = pods;

  function filters() {
    const present = data.fates.filter((fate) => pods.some((pod) => pod.fate === fate));
    for (const fate of present) {
      const box = make("input", { type: "checkbox", value: fate, checked: "" });
      const sign = make("span", { "aria-hidden": "true", class: `fate ${fate}` }, SIGNS[fate]);
      $("fates").append(make("label", {}, box, sign, fate));
    }
    for (const [index, priority] of data.waves)
      $("wave").append(make("option", { value: index }, `${index} (priority ${priority})`));
    for (const event of ["input", "change"]) $("tools").addEventListener(event, soon(sift));
    $("tools").hidden = false;
  }
  function sift() {
    const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean), wave = $("wave").value;
    const fates = [...$("fates").querySelectorAll(":checked")].map((box) => box.value);
    shown = pods.filter((pod) => fates.includes(pod.fate) && (wave === "" || pod.wave === Number(wave)) &&
      words.every((word) => texts[pod.index].includes(word)));
    const fits = new Set(shown);
    for (const pod of pods) rows[pod.index].hidden = !fits.has(pod);
    $("no-pods").hidden = shown.length > 0;
    $("found").textContent = shown.length === pods.length ? `${grouped(pods.length)} pods`
      : `${grouped(shown.length)} of ${grouped(pods.length)} pods`;
    layOut();
  }

  // --- the table of pods ---------------------------------------------------------------------------
  function sorting() {
    const heads = [...$("pod-table").tHead.rows[0].cells], compare = new Intl.Collator("en", { numeric: true }).compare;
    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending", way = down ? -1 : 1;
      const cell = (row) => row.cells[column];
      const key = head.dataset.kind === "number" ? (row) => Number(cell(row).dataset.v) : (row) => cell(row).textContent;
      const by = head.dataset.kind === "number" ? (a, b) => a - b : compare;
      const keyed = rows.map((row) => [key(row), row]).sort((a, b) => way * by(a[0], b[0]));
      $("pod-rows").append(...keyed.map((pair) => pair[1]));
      for (const each of heads) if (each.dataset.kind) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    }));
  }
  function choose(pod) {
    for (const row of rows) row.classList.toggle("chosen", row === rows[pod.index]);
    const row = rows[pod.index], more = row.querySelector("details"), target = more?.firstElementChild ?? row;
    if (more) more.open = true; else row.tabIndex = -1;
    target.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  // --- the timeline ----------------------------------------------------------------------------------
  const ROW = 22, AXIS = 52, PRINTED_MAX = 150, SPAN_MIN = 1000;
  const chart = $("chart"), axis = $("axis"), lanes = $("lanes");
  const deadline = data.lines.find(([name]) => name === "deadline")?.[1] ?? 0;
  const end = Math.max(data.last, 1000, ...data.lines.filter(([name]) => name !== "deadline").map(([, at]) => at));
  const whole = { from: -end * 0.01, to: Math.max(end, deadline <= end * 1.5 ? deadline : 0) * 1.03 };
  const view = { ...whole, lines: [], active: null, width: 900, label: 220 };
  const late = soon(paint);
  /** The rows of the chart: what ran beside, then each wave and those of its pods that are shown. */
  function layOut() {
    const lines = data.beside.map((span) => ({ span }));
    const waves = new Map([...data.waves.map((wave) => [wave[0], { wave, pods: [] }]), [-1, { wave: null, pods: [] }]]);
    for (const pod of shown) waves.get(pod.wave)?.pods.push(pod);
    for (const { wave, pods: members } of waves.values()) {
      if (wave) lines.push({ wave });
      for (const pod of members) lines.push({ pod, wave });
    }
    view.lines = lines;
    if (!shown.includes(view.active)) activate(null);
    $("rows").style.height = `${lines.length * ROW}px`;
    late();
  }

  function paint(printing = false) {
    const width = printing ? 1040 : chart.clientWidth;
    view.width = width;
    view.label = width < 560 ? 104 : 230;
    const first = printing ? 0 : Math.max(0, Math.floor((chart.scrollTop - AXIS) / ROW));
    const count = printing ? view.lines.length : Math.ceil(chart.clientHeight / ROW) + 2;
    const lines = view.lines.slice(first, first + count);
    size(axis, width, AXIS);
    size(lanes, width, lines.length * ROW);
    lanes.style.top = printing ? "0" : `${first * ROW}px`;
    paintAxis();
    paintLanes(lines);
    $("range").textContent = `${moment(Math.round(Math.max(view.from, 0)))} to ${moment(Math.round(view.to))}`;
  }
  function size(svg, width, height) {
    fill(svg, { width, height, viewBox: `0 0 ${width} ${height}` }, []);
    svg.replaceChildren();
  }
  const plotWidth = () => view.width - view.label - 10;
  const x = (us) => ((us - view.from) / (view.to - view.from)) * plotWidth();
  const part = (svg, left, width, height) => draw(svg, "svg", { x: left, width, height, overflow: "hidden" });

  function paintAxis() {
    const plot = part(axis, view.label, plotWidth() + 10, AXIS), ends = [-1e9, -1e9];
    for (const [name, at] of data.lines.toSorted((a, b) => a[1] - b[1])) {
      const right = x(at) > plotWidth() - 60, level = x(at) - (right ? name.length * 7 : 0) < ends[0] ? 1 : 0;
      draw(plot, "line", { x1: x(at), x2: x(at), y1: level * 13 + 2, y2: AXIS, class: `rule ${name}` });
      draw(plot, "text", { x: x(at) + (right ? -4 : 4), y: level * 13 + 12, "text-anchor": right ? "end" : "start" }, name);
      ends[level] = x(at) + (right ? 0 : name.length * 7 + 8);
    }
    for (const at of ticks()) {
      draw(plot, "line", { x1: x(at), x2: x(at), y1: AXIS - 5, y2: AXIS, class: "rule" });
      const anchor = x(at) < 12 ? "start" : x(at) > plotWidth() - 16 ? "end" : "middle";
      draw(plot, "text", { x: x(at), y: AXIS - 8, "text-anchor": anchor, class: "soft" }, at ? moment(at) : "0");
    }
    if (deadline > whole.to) draw(axis, "text", { x: 8, y: 13, class: "soft" }, `deadline ${moment(deadline)}`);
  }
  function ticks() {
    const rough = (view.to - view.from) / Math.max(2, plotWidth() / 90), power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, power * [1, 2, 5, 10].find((each) => each * power >= rough)), found = [];
    for (let at = Math.ceil(Math.max(0, view.from) / step) * step; at <= view.to; at += step) found.push(Math.round(at));
    return found;
  }

  function paintLanes(lines) {
    const height = lines.length * ROW, hatch = draw(draw(lanes, "defs"), "pattern",
      { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    draw(hatch, "rect", { width: 2.5, height: 6, fill: "var(--card)", opacity: 0.55 });
    lines.forEach((line, at) => {
      if (line.wave && !line.pod) draw(lanes, "rect", { y: at * ROW, width: view.width, height: ROW, class: "lane" });
      if (line.pod && line.pod === view.active)
        draw(lanes, "rect", { x: 1, y: at * ROW + 1, width: view.width - 2, height: ROW - 2, class: "on" });
    });
    const names = part(lanes, 8, view.label - 14, height), plot = part(lanes, view.label, plotWidth() + 10, height);
    for (const at of ticks()) draw(plot, "line", { x1: x(at), x2: x(at), y1: 0, y2: height, class: "grid" });
    for (const [name, at] of data.lines) draw(plot, "line", { x1: x(at), x2: x(at), y1: 0, y2: height, class: `rule ${name}` });
    lines.forEach((line, at) => {
      const kind = line.pod ? "" : line.wave ? "head" : "soft", y = at * ROW;
      if (holders.has(line.pod?.index)) draw(names, "path", { d: `M1 ${y + 6}l6 5l-6 5z`, class: "holder" });
      draw(names, "text", { x: line.pod ? 12 : 0, y: y + 15, class: kind }, line.pod ? line.pod.label : title(line));
      (line.pod ? podBar : line.wave ? waveBar : besideBar)(plot, line, y);
    });
  }

  const title = (line) => (line.wave ? `Wave ${line.wave[0]}${view.label > 150 ? ` · ${line.wave[5]}` : ""}` : line.span[0]);
  const bar = (plot, from, to, y, height, kind) => draw(plot, "rect",
    { x: x(from), y, width: Math.max(1.5, x(to ?? data.last) - x(from)), height, class: kind, rx: 1 });
  const upright = (plot, at, y, height, kind) => draw(plot, "line", { x1: x(at), x2: x(at), y1: y, y2: y + height, class: kind });
  function besideBar(plot, { span }, y) { for (const [began, ended] of span[1]) bar(plot, began, ended, y + 8, 6, "besidebar"); }
  function waveBar(plot, { wave: [, , began, ended, bound] }, y) {
    if (began === null) return;
    bar(plot, began, bound, y + 6, 10, "bound");
    bar(plot, began, ended, y + 6, 10, "wavebar");
    if (bound !== null) upright(plot, bound, y + 2, ROW - 4, "limit");
  }
  function podBar(plot, { pod, wave }, y) {
    if (pod.began === null) { draw(plot, "text", { x: 6, y: y + 15, class: "soft" }, `${SIGNS[pod.fate]} ${pod.fate}`); return; }
    if (pod.bound !== null) bar(plot, pod.began, pod.bound, y + 4, ROW - 8, "bound");
    bar(plot, pod.began, pod.ended, y + 4, ROW - 8, `f-${pod.fate}`);
    if (pod.fate !== "graceful") bar(plot, pod.began, pod.ended, y + 4, ROW - 8, "").setAttribute("fill", "url(#hatch)");
    for (const [began, ended] of pod.hooks) bar(plot, began, ended, y + 9, 4, "hook");
    for (const at of pod.signals) upright(plot, at, y + 2, ROW - 4, "mark");
    for (const at of pod.kills) draw(plot, "path", { d: `M${x(at) - 4} ${y + 7}l8 8m0 -8l-8 8`, class: "kill" });
    if (pod.hurried !== null) draw(plot, "path", { d: `M${x(pod.hurried) - 5} ${y + 7}l4 4l-4 4m5 -8l4 4l-4 4`, class: "mark" });
    if (wave?.[4] != null) upright(plot, wave[4], y, ROW, "rule deadline");
    const after = x(pod.ended ?? data.last) + 5;
    if (plotWidth() - after > 16) draw(plot, "text", { x: Math.max(after, 2), y: y + 15, class: "soft" }, SIGNS[pod.fate]);
  }
  function activate(pod) {
    view.active = pod;
    $("said").replaceChildren();
    if (!pod) return;
    const times = pod.began === null ? "never begun" : `began ${moment(pod.began)}, ${pod.ended === null ? "no end on record" : `ended ${moment(pod.ended)}`}`;
    const why = rows[pod.index].querySelector(".why").textContent;
    const open = make("button", { type: "button" }, "In the table"), list = make("button", { type: "button" }, "Its events");
    open.addEventListener("click", () => choose(pod));
    list.addEventListener("click", () => { $("event-find").value = pod.label; siftEvents(); $("event-find").focus(); });
    $("said").append(`${SIGNS[pod.fate]} ${pod.label}, wave ${pod.wave < 0 ? "none" : pod.wave}: ${pod.fate}, ${times}. ${why} `, open, " ", list);
    late();
  }
  function look(from, to) {
    const span = Math.min(Math.max(to - from, SPAN_MIN), whole.to - whole.from);
    view.from = Math.min(Math.max(from, whole.from), whole.to - span);
    view.to = view.from + span;
    late();
  }
  function zoom(factor, share = 0.5) {
    const at = view.from + (view.to - view.from) * share, span = (view.to - view.from) * factor;
    look(at - span * share, at + span * (1 - share));
  }
  const pan = (share) => { const by = (view.to - view.from) * share; look(view.from + by, view.to + by); };
  const shareOf = (clientX) => Math.min(1, Math.max(0, (clientX - chart.getBoundingClientRect().left - view.label) / plotWidth()));
  function walk(by) {
    const podLines = view.lines.filter((line) => line.pod), at = podLines.findIndex((line) => line.pod === view.active);
    const next = podLines[Math.min(podLines.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : podLines.length - 1) : at + by))];
    if (!next) return;
    activate(next.pod);
    const top = view.lines.indexOf(next) * ROW;
    if (top < chart.scrollTop) chart.scrollTop = top;
    if (top + ROW * 2 + AXIS > chart.scrollTop + chart.clientHeight) chart.scrollTop = top + ROW * 2 + AXIS - chart.clientHeight;
  }
  function hands() {
    const keys = { ArrowDown: () => walk(1), ArrowUp: () => walk(-1), PageDown: () => walk(15), PageUp: () => walk(-15),
      Home: () => walk(-pods.length), End: () => walk(pods.length), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => look(whole.from, whole.to),
      Enter: () => view.active && choose(view.active) };
    chart.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    chart.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 200), shareOf(event.clientX));
    }, { passive: false });
    chart.addEventListener("scroll", late);
    $("zoom-in").addEventListener("click", () => zoom(0.6));
    $("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
    $("zoom-all").addEventListener("click", () => look(whole.from, whole.to));
    pointers();
  }

  /** One pointer moves the chart, two zoom it; one that does not move chooses a pod. */
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
      const line = view.lines[Math.floor((event.clientY - $("rows").getBoundingClientRect().top) / ROW)];
      if (clicked && line?.pod) activate(line.pod);
    });
  }
  function legend() {
    const picture = (paintOn, words) => {
      const svg = draw($("legend").appendChild(make("li", {}, words)), "svg", { width: 22, height: 14, "aria-hidden": "true" });
      svg.parentNode.prepend(svg);
      paintOn(svg);
    };
    const box = (kind, y = 2, height = 10) => (svg) => draw(svg, "rect", { y, width: 22, height, class: kind });
    for (const fate of new Set(pods.filter((pod) => pod.began !== null).map((pod) => pod.fate)))
      picture(box(`f-${fate}`), `${SIGNS[fate]} ${fate}`);
    picture((svg) => draw(svg, "path", { d: "M8 2l6 5l-6 5z", class: "holder" }), "held its wave up");
    picture(box("bound"), "the time it could have had");
    picture((svg) => { box("f-graceful")(svg); box("hook", 5, 4)(svg); }, "preStop hook");
    picture((svg) => draw(svg, "line", { x1: 11, x2: 11, y1: 1, y2: 13, class: "mark" }), "stop signal");
    picture((svg) => draw(svg, "path", { d: "M7 3l8 8m0 -8l-8 8", class: "kill" }), "SIGKILL");
    picture((svg) => draw(svg, "line", { x1: 11, x2: 11, y1: 0, y2: 14, class: "rule deadline" }), "a deadline");
  }

  // --- events ------------------------------------------------------------------------------------------
  const LINE = 34, events = data.events, all = events.seq.map((_, at) => at), podOf = (at) => pods[events.pod[at]]?.label ?? "";
  const place = new Map(events.seq.map((seq, at) => [seq, at]));
  let listed = all, hay = null;
  const listLate = soon(list);
  function siftEvents() {
    const words = $("event-find").value.toLowerCase().split(/\s+/).filter(Boolean), type = $("event-type").value;
    if (words.length) hay ??= all.map((at) => `${events.seq[at]} ${events.types[events.type[at]]} ${events.actors[events.actor[at]]} ${podOf(at)} ${events.text[at]} ${events.data[at]}`.toLowerCase());
    listed = all.filter((at) => (type === "" || events.type[at] === Number(type)) && words.every((word) => hay[at].includes(word)));
    $("event-found").textContent = listed.length === all.length ? `${grouped(all.length)} events` : `${grouped(listed.length)} of ${grouped(all.length)} events`;
    $("event-table").setAttribute("aria-rowcount", listed.length + 1);
    $("event-frame").scrollTop = 0;
    listLate();
  }

  /** Only the rows in sight are in the document; two empty ones keep the height of the rest. */
  function list() {
    const frame = $("event-frame"), fits = Math.ceil(frame.clientHeight / LINE) + 8;
    const first = Math.max(0, Math.min(listed.length - fits, Math.floor(frame.scrollTop / LINE) - 4));
    const focused = document.activeElement?.dataset?.seq, seen = listed.slice(first, first + fits);
    $("event-rows").replaceChildren(pad(first), ...seen.map((at, offset) => eventRow(at, first + offset)), pad(listed.length - first - seen.length));
    if (focused) $("event-rows").querySelector(`[data-seq="${focused}"]`)?.focus({ preventScroll: true });
  }
  function pad(count) {
    const cell = make("td"), row = make("tr", { class: "pad", "aria-hidden": "true" }, cell);
    cell.style.height = `${Math.max(0, count) * LINE}px`;
    row.hidden = count <= 0;
    return row;
  }
  function eventRow(at, index) {
    const button = make("button", { type: "button", "data-seq": events.seq[at], "aria-label": `Record ${events.seq[at]}, all of it` }, String(events.seq[at]));
    button.addEventListener("click", () => tell(at));
    return make("tr", { "aria-rowindex": index + 2 }, make("td", { class: "num" }, button), make("td", { class: "num" }, moment(events.at[at])),
      make("td", { class: "wide num" }, events.cause[at] ? String(events.cause[at]) : "–"), make("td", {}, events.types[events.type[at]]),
      make("td", { class: "wide" }, events.actors[events.actor[at]]), make("td", { class: "wide" }, podOf(at)),
      make("td", { class: events.bad[at] ? "bad" : "" }, events.bad[at] ? "! " : "", events.text[at]));
  }

  /** One record whole, and why it came about: its causes, back to the fact. */
  function tell(at) {
    const card = $("event-more"), why = [];
    for (let cause = place.get(events.cause[at]); cause !== undefined && why.length < 30; cause = place.get(events.cause[cause])) why.push(cause);
    const links = why.flatMap((each) => {
      const button = make("button", { type: "button" }, `${events.seq[each]} ${events.types[events.type[each]]}`);
      button.addEventListener("click", () => tell(each));
      return [button, " "];
    });
    const head = `Record ${events.seq[at]}, ${moment(events.at[at])}: ${events.types[events.type[at]]} by ${events.actors[events.actor[at]]}${podOf(at) && ` for ${podOf(at)}`}`;
    card.replaceChildren(make("p", {}, make("strong", {}, head)), make("p", {}, events.text[at]), make("pre", {}, events.data[at] || "no field differs from its default"),
      ...(links.length ? [make("p", {}, "Because of ", ...links)] : [make("p", {}, "A fact: learned from outside.")]));
    card.hidden = false;
    card.scrollIntoView({ block: "nearest" });
  }
  function eventTools() {
    events.types.map((name, at) => [name, at]).sort().forEach(([name, at]) => $("event-type").append(make("option", { value: at }, name)));
    for (const event of ["input", "change"]) $("event-tools").addEventListener(event, soon(siftEvents));
    $("event-frame").addEventListener("scroll", listLate);
    $("event-tools").hidden = $("event-frame").hidden = false;
    siftEvents();
  }

  // --- paper ---------------------------------------------------------------------------------------------
  /** On paper all of the chart stands, or its most telling rows, and autopsies are unfolded. */
  function paper() {
    let unfolded = [], kept = null;
    addEventListener("beforeprint", () => {
      unfolded = [...document.querySelectorAll("details[data-print]:not([open])")];
      for (const each of unfolded) each.open = true;
      kept = view.lines;
      const telling = (line) => !line.pod || line.pod.fate !== "graceful";
      if (kept.length > PRINTED_MAX) view.lines = kept.filter(telling).slice(0, PRINTED_MAX);
      paint(true);
    });
    addEventListener("afterprint", () => {
      for (const each of unfolded) each.open = false;
      view.lines = kept ?? view.lines;
      late();
    });
  }

  theme();
  filters();
  sorting();
  hands();
  legend();
  $("drawing").hidden = false;
  sift();
  new ResizeObserver(late).observe(chart);
  new ResizeObserver(listLate).observe($("event-frame"));
  eventTools();
  paper();
})();
