// SPDX-License-Identifier: Apache-2.0
// Keeps an open page fresh: what an event says has changed is fetched again as HTML, from the very
// address of the page, and replaces the elements of the same data-key.  Without it, pages work too.
"use strict";
(() => {
  const live = document.getElementById("live");
  const offset = Date.now() - Date.parse(document.body.dataset.now);
  const names = new Set(); // nodes whose rows changed; only on the fleet without a filter
  let whole = false, busy = false, timer = 0, ended = 0, pause = 150, lost = false;

  const say = (tone, words) => {
    live.className = `live ${tone}`;
    live.querySelector("span").textContent = words;
  };

  const units = [[120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]];
  const showAges = () => {
    for (const time of document.querySelectorAll("time[data-age]")) {
      const seconds = Math.max(0, (Date.now() - offset - Date.parse(time.dateTime)) / 1000);
      const [, size, unit] = units.find(([most]) => seconds < most);
      const text = `${Math.floor(seconds / size)} ${unit} ago`;
      if (time.textContent !== text) time.textContent = text;
    }
  };

  const keysOf = (root) => [...root.querySelectorAll("[data-key]")].map((each) => each.dataset.key);

  // What has the focus, as something that finds it again among new elements.
  const rememberFocus = () => {
    const old = document.activeElement;
    if (!old || old === document.body) return () => {};
    const place = old.getAttribute("href"), field = old.name, value = old.value;
    const key = old.closest("[data-key]")?.dataset.key;
    return () => {
      if (old.isConnected) return;
      const home = key ? document.querySelector(`[data-key="${CSS.escape(key)}"]`) : document;
      const again = place
        ? home?.querySelector(`[href="${CSS.escape(place)}"]:not([tabindex])`)
        : field && home?.querySelector(`[name="${CSS.escape(field)}"]`);
      if (!again) return;
      if (field) again.value = value;
      again.focus({ preventScroll: true });
    };
  };

  const merge = (text, all) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const restoreFocus = rememberFocus();
    document.title = page.title;
    if (all && keysOf(document).join("\n") !== keysOf(page).join("\n")) {
      document.querySelector("main").replaceWith(page.querySelector("main"));
      return restoreFocus();
    }
    const known = new Map();
    for (const each of document.querySelectorAll("[data-key]")) known.set(each.dataset.key, each);
    for (const fresh of page.querySelectorAll("[data-key]")) {
      if (fresh.querySelector("[data-key]")) continue; // its parts are merged one by one
      const old = known.get(fresh.dataset.key);
      if (!old) { whole = true; continue; } // a new node
      if (old.outerHTML === fresh.outerHTML) continue;
      const open = [...old.querySelectorAll("details")].map((each) => each.open);
      old.replaceWith(fresh);
      if (fresh.tagName === "TR") fresh.classList.add("fresh");
      fresh.querySelectorAll("details").forEach((each, i) => { if (i in open) each.open = open[i]; });
    }
    restoreFocus();
  };

  const fetchAgain = async () => {
    timer = 0;
    if (busy) return plan();
    busy = true;
    const begun = performance.now();
    const all = whole || names.size > 60 || location.pathname !== "/" || location.search !== "";
    const only = all ? [] : [...names].map((name) => `only=${encodeURIComponent(name)}`);
    whole = false;
    names.clear();
    try {
      const address = location.pathname + location.search + (only.length ? `?${only.join("&")}` : "");
      const answer = await fetch(address, { headers: { Accept: "text/html" } });
      if (answer.ok) merge(await answer.text(), all);
    } catch {
      whole = true; // the stream tells when the server is there again
    }
    busy = false;
    // A large page is not fetched without end: at most a quarter of the time goes into it.
    ended = performance.now();
    pause = Math.max(150, 3 * (ended - begun));
    showAges();
    if (whole && !lost) plan();
  };
  const plan = () => {
    timer ||= setTimeout(fetchAgain, Math.max(30, ended + pause - performance.now()));
  };

  const source = new EventSource("/api/v1/events");
  source.onopen = () => {
    say("on", "live");
    if (lost) { whole = true; plan(); }
    lost = false;
  };
  source.onerror = () => { lost = true; say("off", "no connection, trying again"); };
  // Each page names the events that are about it.
  const mine = document.querySelector("main").dataset.events.split(" ");
  const here = decodeURIComponent(location.pathname);
  if (mine.includes("node")) source.addEventListener("node", (event) => {
    const { node } = JSON.parse(event.data);
    if (here.startsWith("/nodes/") && here !== `/nodes/${node}`) return;
    names.add(node);
    plan();
  });
  for (const name of [...mine.filter((each) => each && each !== "node"), "faults", "resync"]) {
    source.addEventListener(name, () => { whole = true; plan(); });
  }
  setInterval(showAges, 5000);

  // Filters take effect when they are chosen, not only when the button is pressed.
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("form.filter");
    if (form && event.target.tagName === "SELECT") form.requestSubmit();
  });
})();
