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

/* Jobs: the list is read again every few seconds, unless somebody is looking at a row of it */
const rows = $("#rows");
if (rows && !new URLSearchParams(location.search).has("after")) {
  const live = $("#live");
  const again = async () => {
    if (document.hidden || rows.matches(":hover, :focus-within")) return;
    try {
      const answer = await fetch(location.href);
      if (!answer.ok) throw new Error(answer.statusText);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      rows.replaceChildren(...(page.querySelector("#rows")?.children ?? []));
      $(".counts").replaceChildren(...page.querySelector(".counts").children);
      live.textContent = page.querySelector("#live").textContent.replace("as of", "live, up to");
      live.classList.remove("stop");
    } catch {
      live.classList.add("stop");
    }
  };
  setInterval(again, 3000);
}
