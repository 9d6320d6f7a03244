/* A log opens at its end. While it is polled it only grows: a swap would move what is read and drop what is selected. */
(function () {
  "use strict";
  function openLogs() {
    document.querySelectorAll("[data-log]").forEach((log) => {
      if (log.known) return;
      log.known = linesOf(log);
      log.scrollTop = log.scrollHeight;
    });
  }
  function linesOf(log) { return log.textContent.split("\n").slice(0, -1); }

  /* How many of the fresh lines are known: the longest run of known lines that the fresh ones begin with. The last known
     line does not count, since a progress bar may have rewritten it. */
  function overlap(known, fresh) {
    const settled = known.length - 1;
    for (let from = 0; from < settled; from += 1) {
      let same = 0;
      while (from + same < settled && known[from + same] === fresh[same]) same += 1;
      if (from + same === settled) return same;
    }
    return settled > 0 ? -1 : 0;
  }

  function grow(log, fresh) {
    if (!fresh.length) return;
    const known = log.known, same = overlap(known, fresh), last = log.lastChild;
    const chosen = window.getSelection(), reading = !chosen.isCollapsed && log.contains(chosen.anchorNode);
    const follow = !reading && (log.hidden || log.scrollHeight - log.scrollTop - log.clientHeight < 8);
    const more = same < 0 ? [log.dataset.gap, ...fresh] : fresh.slice(same);
    if (same >= 0 && known.length) {
      const before = known[known.length - 1], now = more.shift();
      if (now !== undefined && now !== before) last.replaceData(last.length - before.length - 1, before.length, now);
    }
    if (more.length) log.append(more.join("\n") + "\n");
    log.known = fresh;
    log.hidden = false;
    while (follow && log.childNodes.length > 1 && log.textContent.length > 4e6) log.firstChild.remove();
    if (follow) log.scrollTop = log.scrollHeight;
  }

  document.addEventListener("DOMContentLoaded", openLogs);
  document.addEventListener("htmx:afterSwap", openLogs);
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, isError } = event.detail, log = target.querySelector("[data-log]");
    if (!log || isError) return;
    const page = new DOMParser().parseFromString(serverResponse, "text/html");
    const fresh = page.querySelector("[data-log]"), whole = page.getElementById(target.id);
    if (!fresh || fresh.dataset.log !== log.dataset.log) return;
    event.detail.shouldSwap = false;
    ["headline", "log-choice", "log-note"].forEach((id) => {
      const now = document.getElementById(id), then = page.getElementById(id);
      if (!now.isEqualNode(then)) now.replaceWith(document.adoptNode(then));
    });
    if (!("poll" in whole.dataset)) target.dataset.poll = "over";
    grow(log, linesOf(fresh));
  });
})();
