// What the steps of a gesture cost, in milliseconds: from the event through the next frame to the finished layout.
// Without a name: which gestures there are; "yardstick" is the machine's own pace: plain rows, laid out anew.
(async (name) => {
  const $ = (id) => document.getElementById(id);
  const frame = () => new Promise((done) => requestAnimationFrame(done));

  async function cost(gesture) {
    await frame();
    const began = performance.now();
    gesture();
    await frame();
    document.body.getBoundingClientRect();
    $("chart").getBoundingClientRect();
    return performance.now() - began;
  }
  async function steps(gestures) {
    const found = [];
    for (const gesture of gestures) found.push(await cost(gesture));
    return found;
  }
  const key = (name) => () => $("chart").dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  const type = (field, text) => () => { $(field).value = text; $(field).dispatchEvent(new InputEvent("input", { bubbles: true })); };
  const times = (count, made) => Array.from({ length: count }, (_, at) => made(at));
  const words = ["w", "we", "web", "web-1", "web-1", "we", "w", ""];

  const gestures = {
    zoom: [...times(12, () => key("+")), ...times(12, () => key("-"))],
    move: times(20, (at) => key(at % 2 ? "ArrowLeft" : "ArrowRight")),
    walk: times(30, () => key("ArrowDown")),
    scroll: times(30, (at) => () => { $("chart").scrollTop = at * 700; }),
    filter: words.map((word) => type("find", word)),
    sort: times(10, (at) => () => document.querySelectorAll(".sort")[at % 5].click()),
    order: times(10, (at) => () => { $("sort").selectedIndex = (at + 1) % 4; $("sort").dispatchEvent(new Event("change", { bubbles: true })); }),
    collapse: times(10, () => () => $("fold").click()),
    "open a group": times(10, (at) => () => { key(at % 2 ? "Enter" : "ArrowDown")(); }),
    "scroll events": times(30, (at) => () => { $("event-frame").scrollTop = at * 9000; }),
    "filter events": ["p", "po", "pod", "podended", "kill", "x", ""].map((word) => type("event-find", word)),
  };
  if (name === "yardstick") {
    const plain = document.body.appendChild(document.createElement("div"));
    plain.setAttribute("style", "position: fixed; inset: 0; contain: strict; overflow: hidden");
    const table = (at) => () => {
      const rows = document.createElement("table");
      for (let row = 0; row < 300; row += 1)
        for (let cell = 0, line = rows.insertRow(); cell < 5; cell += 1) line.insertCell().textContent = `${at} ${row} ${cell}`;
      plain.replaceChildren(rows);
      plain.getBoundingClientRect();
    };
    const found = await steps(times(5, table));
    plain.remove();
    return found;
  }
  return name ? steps(gestures[name]) : Object.keys(gestures);
})
