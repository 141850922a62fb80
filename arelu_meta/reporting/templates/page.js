"use strict";
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const show = (text, event) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 6)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 6)) + "px";
  };
  const hide = () => { tip.hidden = true; };

  // Values at the points: the browser's own slow hints are replaced, and a seed lights up in every arm.
  for (const strip of document.querySelectorAll(".strip")) {
    for (const title of strip.querySelectorAll("title")) {
      const mark = title.parentNode, text = title.textContent, seed = mark.dataset.seed;
      const alike = () => seed === undefined ? [] :
        mark.closest(".dots").querySelectorAll(`[data-seed="${CSS.escape(seed)}"]`);
      title.remove();
      mark.addEventListener("pointermove", (event) => show(text, event));
      mark.addEventListener("pointerenter", () => alike().forEach((dot) => dot.classList.add("same")));
      mark.addEventListener("pointerleave", () => {
        hide();
        alike().forEach((dot) => dot.classList.remove("same"));
      });
    }
  }

  // Values of all lines shown, at the step under the pointer.
  for (const area of document.querySelectorAll(".area")) {
    const [low, high, log] = JSON.parse(area.dataset.scale);
    const cross = document.createElement("span");
    cross.className = "cross";
    cross.hidden = true;
    area.append(cross);
    const lines = [...area.querySelectorAll("g[data-points]")].reverse().map((g) => [g, JSON.parse(g.dataset.points)]);
    const place = (x) => ((log ? Math.log10(x) : x) - low) / (high - low);
    area.addEventListener("pointermove", (event) => {
      const box = area.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width;
      const drawn = lines.filter(([g]) => getComputedStyle(g).display !== "none");
      if (!drawn.length) return hide();
      const x = drawn.flatMap(([, points]) => points.map((point) => point[0]))
        .reduce((a, b) => Math.abs(place(b) - at) < Math.abs(place(a) - at) ? b : a);
      const shown = drawn.map(([g, points]) => [g.dataset.arm, points.find((point) => point[0] === x)])
        .filter(([, point]) => point);
      cross.hidden = false;
      cross.style.left = 100 * place(x) + "%";
      const words = shown.map(([arm, [, mean, from, to]]) =>
        `${arm}: ${mean}` + (from === null ? "" : ` [${from}, ${to}]`));
      show([`${area.dataset.x} ${x}`, ...words].join("\n"), event);
    });
    area.addEventListener("pointerleave", () => { hide(); cross.hidden = true; });
  }

  // Tables sort by the numbers behind their cells; what has no number stays below.
  for (const table of document.querySelectorAll("table")) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const order = (row) => row.cells[column].dataset.order;
        const rows = [...table.tBodies[0].rows];
        const words = rows.some((row) => isNaN(Number(order(row))) && order(row) !== "nan");
        rows.sort((a, b) => {
          if (words) return (up ? 1 : -1) * order(a).localeCompare(order(b));
          const [one, two] = [Number(order(a)), Number(order(b))];
          if (isNaN(one) || isNaN(two)) return isNaN(one) - isNaN(two);
          return up ? one - two : two - one;
        });
        table.tBodies[0].append(...rows);
      });
    });
  }
})();
