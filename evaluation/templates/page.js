"use strict";
(() => {
  const tip = document.getElementById("tip");
  let shown = null;

  const hide = () => {
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };

  const show = (unit) => {
    if (shown === unit) return;
    hide();
    shown = unit;
    const word = document.createElement("bdi");
    word.textContent = unit.textContent;
    tip.replaceChildren(word, "\n" + unit.dataset.says);
    tip.hidden = false;
    unit.setAttribute("aria-describedby", "tip");
    place(unit);
  };

  const place = (unit) => {
    const box = unit.getClientRects()[0];
    if (!box || box.bottom < 0 || box.top > innerHeight) return hide();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left), document.documentElement.clientWidth - own.width - 8);
    const above = box.top - own.height;
    tip.style.left = Math.max(0, left) + "px";
    tip.style.top = (above >= 0 ? above : box.bottom) + "px";
  };

  const unitAt = (event) => event.target.closest && event.target.closest("mark[data-says]");
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };

  for (const words of document.querySelectorAll(".layer .words")) {
    const units = [...words.querySelectorAll("mark")];
    units.forEach((unit, index) => {
      unit.dataset.says = unit.title; // without a script the browser shows the title
      unit.removeAttribute("title");
      unit.tabIndex = index ? -1 : 0;
    });
    words.addEventListener("keydown", (event) => {
      let step = steps[event.key];
      const here = units.indexOf(event.target);
      if (step === undefined || here < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const across = event.key === "ArrowRight" || event.key === "ArrowLeft";
      if (across && getComputedStyle(words).direction === "rtl") step = -step;
      const next = units[Math.min(Math.max(here + step, 0), units.length - 1)];
      event.preventDefault();
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
    words.addEventListener("focusin", (event) => {
      const unit = unitAt(event);
      if (!unit) return;
      for (const other of units) other.tabIndex = other === unit ? 0 : -1;
      show(unit);
    });
    words.addEventListener("focusout", hide);
  }

  document.addEventListener("mouseover", (event) => {
    const unit = unitAt(event);
    if (unit) show(unit);
    else if (shown && !event.target.closest("#tip") && shown !== document.activeElement) hide();
  });
  document.addEventListener("click", (event) => {
    const unit = unitAt(event);
    if (unit) unit.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  for (const event of ["scroll", "resize"]) {
    addEventListener(event, () => shown && place(shown), { passive: true, capture: true });
  }
})();
