// What a person with weak eyes or without a mouse would stumble over; run inside the page, returns a list of complaints.
(() => {
  const rgb = (text) => {
    const numbers = (text.match(/[\d.]+/g) ?? []).map(Number);
    return { r: numbers[0] ?? 0, g: numbers[1] ?? 0, b: numbers[2] ?? 0, a: numbers.length > 3 ? numbers[3] : 1 };
  };
  const over = (top, below) => ["r", "g", "b"].reduce((made, key) => ({ ...made, [key]: top[key] * top.a + below[key] * (1 - top.a) }), { a: 1 });
  const light = (colour) => {
    const [r, g, b] = [colour.r, colour.g, colour.b].map((each) => each / 255).map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => { const [high, low] = [light(one), light(other)].sort((a, b) => b - a); return (high + 0.05) / (low + 0.05); };

  function ground(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.a > 0) layers.push(colour);
      if (colour.a === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  }
  const seen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && element.getClientRects().length > 0;
  const speaks = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());

  const found = [];
  let looked = 0;
  for (const element of document.querySelectorAll("body *")) {
    if (!seen(element) || !speaks(element) || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const ink = rgb(element.closest("svg") ? style.fill : style.color), below = ground(element), has = ratio(over(ink, below), below);
    looked += 1;
    if (has < needed) found.push(`contrast ${has.toFixed(2)} of "${element.textContent.trim().slice(0, 40)}" (${element.tagName} ${element.className.baseVal ?? element.className})`);
  }
  return { looked, found: [...new Set(found)] };
})()
