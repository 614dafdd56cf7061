// The page without this script is whole text; with it, it can be searched, sorted and zoomed. No library, no
// network, no storage; what is seen is in the address, so that it can be sent. Text gets into the page as text only. Times
// are microseconds since the signal.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const fields = ["label", "wave", "fate", "began", "ended", "bound", "signals", "kills", "hurried", "hooks", "at", "alike"];
  const pods = data.pods.map((row, index) => ({ index, ...Object.fromEntries(fields.map((name, at) => [name, row[at]])) }));
  for (const pod of pods) pod.fate = data.fates[pod.fate];
  const rows = [...$("pod-rows").rows];
  const SIGNS = Object.fromEntries(data.fates.map((fate, at) => [fate, data.signs[at]]));

  // --- small things ------------------------------------------------------------------------------
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (parent, tag, attributes = {}, ...children) =>
    parent.appendChild(fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children));

  /** As everywhere in Ebbtide (`events/units.py`): 40 µs, 8.98 ms, 705 ms, 5.944 s, 90 s, 12 min 5 s. */
  function lasted(us) {
    const decimal = (number, digits) => (number / 10 ** digits).toFixed(number % 10 ** digits ? digits : 0);
    if (us < 1e3) return us ? `${us} µs` : "0 s";
    if (us < 1e6) return `${us < 1e4 ? decimal(Math.floor(us / 10), 2) : Math.floor(us / 1e3)} ms`;
    let ms = Math.floor(us / 1e3);
    const units = us < 6e8 ? [] : [["d", 864e5], ["h", 36e5], ["min", 6e4]], parts = [];
    for (const [name, size] of units) if (ms >= size) [parts[parts.length], ms] = [`${Math.floor(ms / size)} ${name}`, ms % size];
    return [...parts, ...(ms ? [`${decimal(ms, 3)} s`] : [])].join(" ");
  }
  const moment = (us) => (us === null ? "–" : us < 0 ? `−${lasted(-us)}` : `+${lasted(us)}`);
  const counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, " ");

  /** Runs ``work`` once before the next frame, however often it is asked for. */
  function soon(work) {
    let asked = false;
    return () => {
      if (!asked) requestAnimationFrame(() => { asked = false; work(); });
      asked = true;
    };
  }

  // --- the clock -------------------------------------------------------------------------------------
  /** Moments since the signal, in UTC, or in the reader's own time. */
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].flatMap((step) => [step, step * 1e3])
    .concat([1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400].map((step) => step * 1e6)).sort((a, b) => a - b);
  const clock = { kind: "signal", step: 1 };
  const two = (number, digits = 2) => String(number).padStart(digits, "0");
  function wall(us, fraction, day) {
    const at = data.started + us, date = new Date(Math.floor(at / 1e3)), get = (what) => date[`get${clock.kind === "utc" ? "UTC" : ""}${what}`]();
    const rest = fraction ? `.${two(at - Math.floor(at / 1e6) * 1e6, 6).slice(0, fraction)}` : "";
    const days = day ? `${get("FullYear")}-${two(get("Month") + 1)}-${two(get("Date"))} ` : "";
    return `${days}${two(get("Hours"))}:${two(get("Minutes"))}:${two(get("Seconds"))}${rest}`;
  }
  clock.say = (us, day = false) => (us === null ? "–" : clock.kind === "signal" ? moment(us) : wall(us, 3, day));
  clock.tick = (us) => {
    if (clock.kind === "signal") return us ? moment(us) : "0 s";
    return wall(us, clock.step >= 1e6 ? 0 : clock.step >= 1e3 ? 3 : 6);
  };
  /** Even moments of the clock that is shown, at most ``count``. */
  clock.ticks = (from, to, count) => {
    const step = STEPS.find((each) => each * count >= to - from) ?? STEPS.at(-1), found = [];
    const zone = clock.kind === "local" ? -new Date(data.started / 1e3).getTimezoneOffset() * 6e7 : 0;
    const shift = clock.kind === "signal" ? 0 : (data.started + zone) % step;
    clock.step = step;
    for (let at = Math.ceil((Math.max(0, from) + shift) / step) * step - shift; at <= to; at += step) found.push(at);
    return found;
  };
  function setClock(kind) {
    clock.kind = ["utc", "local"].includes(kind) ? kind : "signal";
    $("clock").value = clock.kind;
    for (const each of document.querySelectorAll("[data-us]")) each.textContent = clock.say(Number(each.dataset.us));
    const signal = clock.kind === "local" ? `${wall(0, 0, true)} ${zoneName()}` : $("signal").dateTime.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC");
    $("signal").textContent = signal;
    listLate();
  }
  const zoneName = () => Intl.DateTimeFormat().resolvedOptions().timeZone ?? "local";

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
    for (const event of ["input", "change"]) $("tools").addEventListener(event, soon(() => { sift(); changed(); }));
    $("sort").addEventListener("change", () => chart.order($("sort").value));
    $("row-kind").addEventListener("change", () => chart.rows($("row-kind").value));
    $("clock").options[2].textContent = `local time (${zoneName()})`;
    $("clock").addEventListener("change", () => { setClock($("clock").value); chart.again(); chart.shown(); });
    $("tools").hidden = false;
  }
  function sift() {
    const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean), wave = $("wave").value;
    const fates = [...$("fates").querySelectorAll(":checked")].map((box) => box.value);
    shown = pods.filter((pod) => fates.includes(pod.fate) && (wave === "" || pod.wave === Number(wave)) &&
      words.every((word) => texts[pod.index].includes(word)));
    const fits = new Set(shown);
    if (pods.some((pod) => rows[pod.index].hidden && fits.has(pod))) later();
    for (const pod of pods) rows[pod.index].hidden = !fits.has(pod);
    $("no-pods").hidden = shown.length > 0;
    $("found").textContent = shown.length === pods.length ? `${grouped(pods.length)} pods`
      : `${grouped(shown.length)} of ${grouped(pods.length)} pods`;
    chart.layOut(shown);
  }

  // --- the table of pods ---------------------------------------------------------------------------
  const SETTLED_AT_ONCE = 30, WAIT_MS = 500;
  const idly = (work) => (window.requestIdleCallback ?? setTimeout)(work, window.requestIdleCallback ? { timeout: WAIT_MS } : 0);
  let unsettled = 0;
  /** Rows out of sight are laid out when the browser has time. Not never: a screen reader reads only what is. */
  function later() {
    for (const row of rows) row.classList.add("later");
    if (!unsettled) idly(settle);
    unsettled = rows.length;
  }
  function settle() {
    // So few that their layout, which comes with the next frame, is not felt.
    for (const row of rows.slice(Math.max(0, unsettled - SETTLED_AT_ONCE), unsettled)) row.classList.remove("later");
    unsettled = Math.max(0, unsettled - SETTLED_AT_ONCE);
    if (unsettled) requestAnimationFrame(() => idly(settle));
  }
  const heads = [...$("pod-table").tHead.rows[0].cells];
  function sorting() {
    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
      sortTable(column, head.getAttribute("aria-sort") === "ascending");
      changed();
    }));
  }
  const keys = {}, compare = new Intl.Collator("en", { numeric: true }).compare;
  /** The table by one of its columns; -1: as at first, the worst fates before others. */
  function sortTable(column, down) {
    const head = heads[column], way = down ? -1 : 1, by = head?.dataset.kind === "text" ? compare : (a, b) => a - b;
    const cell = (row) => row.cells[column];
    keys[column] ??= rows.map(!head ? () => 0 : head.dataset.kind === "number" ? (row) => Number(cell(row).dataset.v) : (row) => cell(row).textContent);
    const keyed = rows.map((row, at) => [keys[column][at], row]).sort((a, b) => way * by(a[0], b[0]));
    later();
    $("pod-rows").append(...keyed.map((pair) => pair[1]));
    for (const each of heads) if (each.dataset.kind) each.setAttribute("aria-sort", "none");
    head?.setAttribute("aria-sort", down ? "descending" : "ascending");
  }
  function choose(pod) {
    for (const row of rows) row.classList.toggle("chosen", row === rows[pod.index]);
    const row = rows[pod.index], more = row.querySelector("details"), target = more?.firstElementChild ?? row;
    if (more) more.open = true; else row.tabIndex = -1;
    target.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  // --- what is said of a row of the timeline -------------------------------------------------------
  function story(pod) {
    const times = pod.began === null ? (pod.at === null ? "never begun" : `at ${clock.say(pod.at)}`)
      : `began ${clock.say(pod.began)}, ${pod.ended === null ? "no end on record" : `ended ${clock.say(pod.ended)}`}`;
    const why = rows[pod.index].querySelector(".why").textContent;
    return `${SIGNS[pod.fate]} ${pod.label}, wave ${pod.wave < 0 ? "none" : pod.wave}: ${pod.fate}, ${times}. ${why}`;
  }
  function tell(line, hint = "") {
    $("said").replaceChildren();
    if (!line) return;
    const { pod } = line;
    if (!pod) { $("said").append(hint); return; }
    const open = make("button", { type: "button" }, "In the table"), list = make("button", { type: "button" }, "Its events");
    open.addEventListener("click", () => choose(pod));
    list.addEventListener("click", () => { $("event-find").value = pod.label; siftEvents(); changed(); $("event-find").focus(); });
    $("said").append(`${story(pod)} `, open, " ", list, " ", make("a", { href: `#pod=${link(nameOf(pod))}` }, "Link to it"));
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
  let listed = all, hay = null, told = null;
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
    button.addEventListener("click", () => showEvent(at));
    return make("tr", { "aria-rowindex": index + 2 }, make("td", { class: "num" }, button), make("td", { class: "num" }, clock.say(events.at[at])),
      make("td", { class: "wide num" }, events.cause[at] ? String(events.cause[at]) : "–"), make("td", {}, events.types[events.type[at]]),
      make("td", { class: "wide" }, events.actors[events.actor[at]]), make("td", { class: "wide" }, podOf(at)),
      make("td", { class: events.bad[at] ? "bad" : "" }, events.bad[at] ? "! " : "", events.text[at]));
  }

  /** One record whole, and why it came about: its causes, back to the fact. */
  function showEvent(at) {
    const card = $("event-more"), why = [];
    for (let cause = place.get(events.cause[at]); cause !== undefined && why.length < 30; cause = place.get(events.cause[cause])) why.push(cause);
    const links = why.flatMap((each) => {
      const button = make("button", { type: "button" }, `${events.seq[each]} ${events.types[events.type[each]]}`);
      button.addEventListener("click", () => showEvent(each));
      return [button, " "];
    });
    const head = `Record ${events.seq[at]}, ${clock.say(events.at[at], true)}: ${events.types[events.type[at]]} by ${events.actors[events.actor[at]]}${podOf(at) && ` for ${podOf(at)}`}`;
    card.replaceChildren(make("p", {}, make("strong", {}, head)), make("p", {}, events.text[at]), make("pre", {}, events.data[at] || "no field differs from its default"),
      ...(links.length ? [make("p", {}, "Because of ", ...links)] : [make("p", {}, "A fact: learned from outside.")]));
    card.hidden = false;
    card.scrollIntoView({ block: "nearest" });
    told = at;
    changed();
  }
  function eventTools() {
    events.types.map((name, at) => [name, at]).sort().forEach(([name, at]) => $("event-type").append(make("option", { value: at }, name)));
    for (const event of ["input", "change"]) $("event-tools").addEventListener(event, soon(() => { siftEvents(); changed(); }));
    $("event-frame").addEventListener("scroll", listLate);
    $("event-tools").hidden = $("event-frame").hidden = false;
    siftEvents();
  }

  // --- a link to what is seen ------------------------------------------------------------------------
  // The address holds what differs from the page at first. It is written a moment after the last change, because a
  // browser refuses hundreds of changes in a row.
  const WRITE_MS = 200;
  const link = (text) => encodeURIComponent(text).replace(/%(2F|3A|2C)/g, decodeURIComponent);
  /** A pod's name in a link; of two of one name the second has ``~2``. */
  const names = new Map(), byName = new Map(), nameOf = (pod) => names.get(pod);
  for (const pod of pods) {
    let name = pod.label;
    for (let count = 2; byName.has(name); count += 1) name = `${pod.label}~${count}`;
    byName.set(name, pod);
    names.set(pod, name);
  }
  let writing = 0, restoring = true;
  function changed() {
    clearTimeout(writing);
    if (!restoring) writing = setTimeout(write, WRITE_MS);
  }
  function write() {
    const { pod, ...seen } = chart.state(), boxes = [...$("fates").querySelectorAll("input")], ticked = boxes.filter((box) => box.checked);
    const sorted = heads.findIndex((head) => !["none", null].includes(head.getAttribute("aria-sort")));
    const wanted = { pod: pod ? nameOf(pod) : "", ...seen, find: $("find").value, wave: $("wave").value,
      fates: ticked.length < boxes.length ? ticked.map((box) => box.value).join(",") || "none" : "",
      clock: clock.kind === "signal" ? "" : clock.kind,
      table: sorted < 0 ? "" : `${heads[sorted].getAttribute("aria-sort") === "descending" ? "-" : ""}${sorted}`,
      event: told === null ? "" : String(events.seq[told]), events: $("event-find").value, type: events.types[$("event-type").value || -1] ?? "" };
    const hash = Object.entries(wanted).filter(([, value]) => value).map(([name, value]) => `${name}=${link(value)}`).join("&");
    if (hash || location.hash.includes("=")) history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }
  function restore() {
    const text = location.hash.slice(1);
    if (!text.includes("=")) return false;
    const wanted = Object.fromEntries(new URLSearchParams(text.replaceAll("+", "%2B"))), pod = byName.get(wanted.pod), fates = wanted.fates?.split(",");
    restoring = true;
    $("find").value = wanted.find ?? "";
    $("wave").value = wanted.wave ?? "";
    for (const box of $("fates").querySelectorAll("input")) box.checked = !fates || fates.includes(box.value);
    $("sort").value = wanted.sort ?? "outcome";
    $("row-kind").value = wanted.rows ?? "";
    setClock(wanted.clock);
    const column = Math.abs(Number(wanted.table ?? NaN));
    sortTable(heads[column]?.dataset.kind ? column : -1, wanted.table?.startsWith("-"));
    chart.restore(wanted, pod);
    sift();
    chart.shown();
    $("event-find").value = wanted.events ?? "";
    $("event-type").value = events.types.includes(wanted.type) ? events.types.indexOf(wanted.type) : "";
    siftEvents();
    const event = place.get(Number(wanted.event));
    if (event === undefined) $("timeline").scrollIntoView(); else showEvent(event);
    restoring = false;
    return true;
  }

  // --- paper -------------------------------------------------------------------------------------------
  /** On paper the chart has a page's height, and the autopsies that are printed are unfolded. */
  function paper() {
    let unfolded = [];
    addEventListener("beforeprint", () => {
      unfolded = [...document.querySelectorAll("details[data-print]:not([open])")];
      for (const each of unfolded) each.open = true;
      chart.print(true);
    });
    addEventListener("afterprint", () => {
      for (const each of unfolded) each.open = false;
      chart.print(false);
    });
  }

  const chart = makeTimeline({ $, make, fill, draw, data, pods, SIGNS, clock, counted, soon, story, tell, choose, changed });
  theme();
  filters();
  sorting();
  legend();
  $("drawing").hidden = false;
  sift();
  eventTools();
  paper();
  restoring = restore();
  restoring = false;
  addEventListener("hashchange", restore);
  addEventListener("resize", soon(chart.again));
  new ResizeObserver(soon(chart.again)).observe($("chart"));
  new ResizeObserver(listLate).observe($("event-frame"));
})();
