/* Antiphon: what the pages do beyond HTML. They work without it. */
"use strict";
const $ = (selector) => document.querySelector(selector);
const root = document.documentElement;

/* light or dark: the system's, unless chosen */
const stored = (value) => {
  try {
    return value === undefined ? localStorage.getItem("theme") : localStorage.setItem("theme", value);
  } catch {
    return null;
  }
};
if (stored()) root.dataset.theme = stored();
const theme = $("#theme");
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    stored(root.dataset.theme);
  });
}

/* Verify: a file that is chosen or dropped is checked at once */
const drop = $("#drop");
if (drop) {
  const input = $("#bundle");
  $("#check").hidden = true;
  input.addEventListener("change", () => drop.submit());
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) {
        input.files = event.dataTransfer.files;
        drop.submit();
      }
    });
  }
}

/* Jobs and Job: the server sends the parts that changed. While somebody points at one, has opened
   a confirmation or marks words, they wait behind a button. A tab that is not seen is not followed. */
const follow = $("[data-stream]");
if (follow && !new URLSearchParams(location.search).has("after")) {
  const more = $("#more");
  let stream = null;
  const waiting = new Map();
  const jobs = (parts) => new Set(parts.flatMap((part) => [...part.querySelectorAll("[data-job]")]).map((row) => row.dataset.job));
  const isFilled = (field) =>
    field.matches("select") ? [...field.options].some((one) => one.selected !== one.defaultSelected && one.value) : field.value !== field.defaultValue;
  const isUsed = () =>
    getSelection().type === "Range" ||
    [...document.querySelectorAll("[data-live]")].some(
      (part) =>
        part.querySelector("details[open], a.n:hover") ||
        part.matches("#rows:hover, :focus-within") ||
        [...part.querySelectorAll("input, select, textarea")].some(isFilled),
    );
  const show = () => {
    if (!waiting.size) return;
    for (const [id, part] of waiting) {
      $(`#${id}`)?.replaceWith(part);
      for (const end of part.querySelectorAll(".tall")) end.scrollTop = end.scrollHeight;
    }
    waiting.clear();
    more.hidden = true;
    say(true);
  };
  const say = (isLive) => {
    const live = $("#live") ?? $("#state");
    live.classList.toggle("stop", !isLive);
    if (live.id === "state") live.textContent = isLive ? "live" : "as it was when it was last read";
    else live.textContent = live.textContent.replace(/^(as of|live, up to)/, isLive ? "live, up to" : "as of");
  };
  const take = (event) => {
    const sent = new DOMParser().parseFromString(event.data, "text/html");
    for (const part of sent.querySelectorAll("[data-live]")) waiting.set(part.id, part);
    if (!isUsed()) return show();
    const seen = jobs([document]);
    const newer = [...jobs([...waiting.values()])].filter((job) => !seen.has(job)).length;
    more.textContent = newer ? `${newer} newer` : "Show what changed";
    more.hidden = false;
  };
  const stop = (isOver) => {
    stream?.close();
    stream = null;
    if (!isOver) say(false);
  };
  const start = () => {
    if (stream || document.hidden) return;
    stream = new EventSource(follow.dataset.stream + location.search);
    stream.onmessage = take;
    stream.addEventListener("end", () => {
      stop(true);
      $("#state").textContent = "ended and proved: nothing of it changes any more";
      document.removeEventListener("visibilitychange", turn);
    });
    stream.onerror = () => say(false);
  };
  const turn = () => (document.hidden ? stop(false) : start());
  more.addEventListener("click", show);
  document.addEventListener("mouseleave", () => isUsed() || show());
  document.addEventListener("visibilitychange", turn);
  addEventListener("pagehide", () => stop(false));
  start();
}
