"use strict";
(() => {
  const steps = [...document.querySelectorAll(".step")];
  const buttons = [...document.querySelectorAll("nav button")];
  let at = 0;
  const show = (wanted) => {
    at = Math.max(0, Math.min(steps.length - 1, wanted));
    steps.forEach((step, n) => step.classList.toggle("current", n === at));
    buttons.forEach((button, n) => {
      if (n === at) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    history.replaceState(null, "", `#${at}`);
  };
  const moves = {
    ArrowRight: () => at + 1, ArrowDown: () => at + 1, j: () => at + 1, " ": () => at + 1,
    ArrowLeft: () => at - 1, ArrowUp: () => at - 1, k: () => at - 1,
    Home: () => 0, End: () => steps.length - 1,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in moves)) return;
    if (event.key === " " && event.target instanceof HTMLButtonElement) return;
    event.preventDefault();
    show(moves[event.key]());
  });
  buttons.forEach((button, n) => button.addEventListener("click", () => show(n)));
  document.body.classList.add("stepping");
  show(Number.parseInt(location.hash.slice(1), 10) || 0);
})();
