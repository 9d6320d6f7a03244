/* Theme, polling that pauses while hidden, messages, shortcuts, buttons that fill the form. */
(function () {
  "use strict";
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function theme() {
    try { return localStorage.getItem("rung-theme") || "system"; } catch { return "system"; }
  }
  function paint() {
    const chosen = theme();
    root.setAttribute("data-bs-theme", chosen === "system" ? (dark.matches ? "dark" : "light") : chosen);
    document.querySelectorAll("[data-set-theme]").forEach((each) => each.setAttribute("aria-pressed", each.dataset.setTheme === chosen));
  }
  paint();
  dark.addEventListener("change", paint);
  document.addEventListener("DOMContentLoaded", paint);

  function say(text, tone) {
    const place = document.getElementById("messages");
    if (!place) return;
    const note = document.createElement("div");
    note.className = "alert alert-" + tone;
    note.textContent = text;
    place.replaceChildren(note);
  }

  function fill(form, values) {
    Object.entries(values).forEach(([name, value]) => {
      form.querySelectorAll("[name='" + CSS.escape(name) + "']").forEach((field) => {
        if (field.type === "radio") field.checked = field.value === value;
        else field.value = value;
      });
    });
    form.dispatchEvent(new Event("change", { bubbles: true }));
  }

  /* The clipboard needs HTTPS. Without it, select the text so that the user can copy it. */
  function copy(button, source) {
    const done = () => { button.querySelector("span").textContent = button.dataset.copied; };
    if (navigator.clipboard) navigator.clipboard.writeText(source.textContent).then(done);
    else window.getSelection().selectAllChildren(source);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-set-theme], [data-fill], [data-check-all], [data-copy]");
    if (!button) return;
    if (button.dataset.setTheme) {
      try { localStorage.setItem("rung-theme", button.dataset.setTheme); } catch { /* private window */ }
      paint();
    } else if (button.dataset.copy) {
      copy(button, document.getElementById(button.dataset.copy));
    } else if (button.dataset.fill) {
      fill(document.getElementById(button.dataset.form), JSON.parse(button.dataset.fill));
    } else {
      document.querySelectorAll("input[name='" + button.dataset.checkAll + "']").forEach((box) => { box.checked = button.checked; });
    }
  });

  document.addEventListener("submit", (event) => {
    const question = event.submitter && event.submitter.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const search = document.querySelector("input[type='search']");
    if (search) { event.preventDefault(); search.focus(); }
  });

  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") return;
    if (event.target.matches("[data-poll]")) event.detail.headers["Rung-Poll"] = "true"; /* keeps no idle session open */
    [...event.detail.formData.entries()].forEach(([name, value]) => { if (value === "") event.detail.formData.delete(name); });
  });

  /* Polling pauses while the page is hidden or the user works in the element. Opening a copy dialog clears the last one. */
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { target, elt } = event.detail, poll = event.target.closest("[data-poll]");
    if (target.id === "act-copies") { target.replaceChildren(); document.getElementById("copy-act-title").textContent = elt.ariaLabel; }
    if (poll !== event.target || !poll) return;
    const busy = poll.querySelector(":focus:not([data-log])") || poll.querySelector("input:checked");
    if (document.hidden || busy || poll.dataset.poll === "over") event.preventDefault();
  });
  /* A swap keeps open what the user opened, and the tab the user chose. */
  let kept = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.getResponseHeader("HX-Retarget")) { event.detail.shouldSwap = true; event.detail.isError = false; }
    kept = [...event.detail.target.querySelectorAll("details[id][open], [role='tab'][id].active")].map((each) => each.id);
  });
  document.addEventListener("htmx:afterSettle", () => kept.forEach((id) => {
    document.querySelector("#" + id + ":not([open]) > summary, #" + id + "[role='tab']:not(.active)")?.click();
  }));
  document.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    const polling = event.target.closest && event.target.closest("[data-poll]") === event.target;
    if (status === 403) say("Permission denied. You may have been signed out: reload the page.", "danger");
    else if (!polling) say("Error " + status + ". Nothing was changed.", "danger");
  });
  document.addEventListener("htmx:sendError", () => say("Rung cannot be reached. This page may be out of date.", "warning"));
})();
