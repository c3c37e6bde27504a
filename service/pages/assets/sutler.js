// Charts, how long ago instants are, and what a page says when it can no longer renew itself. All else is HTML.
"use strict";

const media = matchMedia("(prefers-color-scheme: dark)");
const isDark = () =>
  document.documentElement.classList.contains("theme-dark") ||
  (!document.documentElement.classList.contains("theme-light") && media.matches);

// Charts: their options are made by the service, and only their colours depend on the browser.
function draw(box) {
  if (!window.echarts) return;
  const option = box.dataset.option;
  const theme = isDark() ? "dark" : null;
  if (box.drawn === option && box.theme === theme) return;
  try {
    if (box.chart && box.theme !== theme) {
      box.chart.dispose();
      box.chart = null;
    }
    box.chart = box.chart || echarts.init(box, theme, { renderer: "svg" });
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    box.chart.setOption({ backgroundColor: "transparent", animation: !still, ...JSON.parse(option) }, true);
    box.drawn = option;
    box.theme = theme;
  } catch (error) {
    box.textContent = "This chart could not be drawn; its table is below.";
  }
}
const drawAll = () => document.querySelectorAll("[data-option]").forEach(draw);
addEventListener("resize", () => document.querySelectorAll("[data-option]").forEach((box) => box.chart?.resize()));
media.addEventListener("change", drawAll);

// "12 minutes ago" beside every instant.
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
function tellAges() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const seconds = (Date.parse(time.dateTime) - Date.now()) / 1000;
    const [unit, length] = UNITS.find(([, length]) => Math.abs(seconds) >= 2 * length) || UNITS[3];
    const words = relative.format(Math.trunc(seconds / length), unit);
    if (time.dataset.age !== words) time.dataset.age = words;
  }
}

// A number beside every slider.
addEventListener("input", ({ target }) => {
  if (target.type !== "range") return;
  const shown = document.getElementById(`${target.id}-value`);
  if (shown) shown.value = target.value;
  target.setAttribute("aria-valuetext", `${target.value} ${target.dataset.unit || ""}`.trim());
});
addEventListener("change", ({ target }) => {
  const slider = target.dataset?.slider && document.getElementById(target.dataset.slider);
  if (slider) slider.value = target.value;
});

// Pages renew themselves, unless somebody holds what is shown (WCAG 2.2.2).
const isHeld = () => sessionStorage.getItem("sutler-held") === "yes";
function tellHeld() {
  const button = document.getElementById("hold");
  button.hidden = !document.getElementById("live").hasAttribute("hx-trigger");
  button.setAttribute("aria-pressed", isHeld());
}
addEventListener("click", ({ target }) => {
  if (target.id !== "hold") return;
  sessionStorage.setItem("sutler-held", isHeld() ? "no" : "yes");
  tellHeld();
});
document.addEventListener("htmx:before:request", (event) => {
  if (event.detail.ctx.sourceElement?.id === "live" && isHeld()) event.preventDefault();
});

// What is shown stays when the service cannot be asked, with the time from which on it is old.
let renewed = new Date();
function pause(why) {
  const note = document.getElementById("paused");
  note.textContent = `Not renewed since ${renewed.toISOString().slice(11, 19)} UTC: ${why}. It goes on by itself.`;
  note.hidden = false;
}
document.addEventListener("htmx:after:request", ({ detail: { ctx } }) => {
  if (ctx.sourceElement?.id !== "live") return;
  const status = ctx.response?.status ?? 0;
  if (status >= 400) return pause(status === 429 ? "too many requests" : `the service answers ${status}`);
  renewed = new Date();
  document.getElementById("paused").hidden = true;
});
document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (!ctx || ctx.sourceElement?.id === "live") pause("the service does not answer");
});
document.addEventListener("htmx:after:swap", () => { drawAll(); tellAges(); tellHeld(); });
document.addEventListener("DOMContentLoaded", () => { drawAll(); tellAges(); tellHeld(); setInterval(tellAges, 5000); });
