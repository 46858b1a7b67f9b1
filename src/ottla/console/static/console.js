// Live regions and keys. Every page works without this file.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  let paused = false;
  let timer = 0;

  // -- live regions: the page is fetched again and the difference is applied ----------------------

  // What the visitor has done stays: open details, typed text, focus, selection, scroll positions.
  const KEPT = { DETAILS: ["open"], INPUT: ["value", "checked"], TEXTAREA: ["value"], SELECT: ["value"] };

  function morph(from, to) {
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.id !== to.id) {
      from.replaceWith(document.importNode(to, true));
      return;
    }
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    // A hidden field is the page's own: it has to go with its row.
    if (from.dataset?.keep) return; // this file has made it
    const own = from.dataset?.own?.split(" ") ?? []; // what this file has set
    const kept = [...((from.type !== "hidden" && KEPT[from.nodeName]) || []), ...own];
    for (const { name, value } of [...to.attributes]) {
      if (!kept.includes(name) && from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    for (const { name } of [...from.attributes]) {
      if (!kept.includes(name) && !to.hasAttribute(name)) from.removeAttribute(name);
    }
    const olds = [...from.childNodes];
    const news = [...to.childNodes];
    news.forEach((child, index) => {
      if (index < olds.length) morph(olds[index], child);
      else from.append(document.importNode(child, true));
    });
    olds.slice(news.length).forEach((child) => child.remove());
  }

  // The server says with status 304 that nothing but the age of the data has changed.
  let tag = "";

  function staleSince(when) {
    tag = ""; // the badge goes with the next page
    const place = $("#stale");
    if (place.dataset.since) return;
    place.dataset.since = "1";
    const badge = document.createElement("p");
    badge.className = "stale";
    badge.setAttribute("role", "status");
    badge.textContent = `stale since ${when.toLocaleTimeString()}: the console does not answer`;
    place.replaceChildren(badge);
  }

  async function refresh() {
    const headers = { Accept: "text/html", ...(tag && { "If-None-Match": tag }) };
    const answer = await fetch(location.href, { headers, signal: AbortSignal.timeout(10000) });
    if (answer.redirected) {
      location.reload(); // the login is over
      return;
    }
    if (answer.status === 304) {
      const age = answer.headers.get("ottla-age");
      if (age) $("#age").textContent = `${Math.round(Number(age))} s ago`;
      return;
    }
    tag = answer.headers.get("etag") || "";
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!$("#live", page)) {
      location.reload(); // what it showed is gone, such as a deleted topic
      return;
    }
    delete $("#stale").dataset.since;
    for (const id of ["live", "attention-counter", "age", "stale"]) {
      const [before, after] = [$(`#${id}`), $(`#${id}`, page)];
      if (before && after) morph(before, after);
    }
    columns();
  }

  // -- columns of a window: arrow keys move along them, Enter opens the record --------------------

  let column = 0;

  function columns() {
    const box = $(".window-box[data-record]");
    const picture = box && $("svg", box);
    const told = box && $(".column", box);
    if (!picture || !told) return;
    const all = [...picture.querySelectorAll("g[data-first]")];
    if (!picture.dataset.own) {
      picture.dataset.own = "data-own role tabindex aria-valuemin aria-valuemax aria-valuenow aria-valuetext";
      picture.setAttribute("role", "slider");
      picture.setAttribute("tabindex", "0");
      picture.setAttribute("aria-valuemin", "0");
      told.dataset.keep = "1";
      told.append(document.createElement("span"), " · ", document.createElement("a"));
      $("a", told).textContent = "open the record";
      picture.addEventListener("keydown", (event) => {
        const [last, page] = [picture.querySelectorAll("g[data-first]").length - 1, 20];
        const to = {
          ArrowLeft: column - 1, ArrowRight: column + 1, Home: 0, End: last,
          PageUp: column - page, PageDown: column + page,
        }[event.key];
        if (to !== undefined) { column = Math.min(Math.max(to, 0), last); tell(true); event.preventDefault(); }
        if (event.key === "Enter") location.href = address();
      });
      picture.addEventListener("click", (event) => {
        const hit = event.target.closest("g[data-first]");
        if (hit) { column = [...picture.querySelectorAll("g[data-first]")].indexOf(hit); tell(true); }
      });
      picture.addEventListener("focus", () => tell(true));
    }
    const address = () => box.dataset.record.replace(/0$/, at().dataset.first);
    const at = () => {
      const now = picture.querySelectorAll("g[data-first]");
      return now[Math.min(column, now.length - 1)];
    };
    const tell = (shows) => {
      const here = at();
      for (const one of picture.querySelectorAll("g.current")) one.classList.remove("current");
      here.classList.add("current");
      const words = $("title", here).textContent;
      picture.setAttribute("aria-valuenow", String(Math.min(column, all.length - 1)));
      picture.setAttribute("aria-valuetext", words);
      if (!shows) return;
      told.hidden = false;
      $("span", told).textContent = words;
      $("a", told).href = address();
    };
    picture.setAttribute("aria-valuemax", String(Math.max(0, all.length - 1)));
    if (all.length) tell(!told.hidden);
  }

  function live() {
    const region = $("#live[data-live]");
    if (!region) return;
    const wait = Math.max(1, Number(region.dataset.live)) * 1000;
    let lastGood = new Date();
    const turn = async () => {
      if (!paused && !document.hidden) {
        try {
          await refresh();
          lastGood = new Date();
        } catch {
          staleSince(lastGood);
        }
      }
      timer = setTimeout(turn, wait);
    };
    timer = setTimeout(turn, wait);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return;
      clearTimeout(timer);
      timer = setTimeout(turn, 0);
    });
  }

  // -- live tail: rows as they come; the stream is closed while the page is hidden ----------------

  const MOST_ROWS = 500;

  function tail() {
    const place = $("#tail[data-tail]");
    if (!place) return;
    const [button, told] = [document.createElement("button"), document.createElement("span")];
    button.className = "plain";
    told.setAttribute("role", "status");
    place.append(button, told);
    const rows = $("#rows");
    let [stream, wanted, passed, gap] = [null, false, 0, ""];

    const say = () => {
      button.textContent = wanted ? "Stop the live tail" : "Live tail";
      told.textContent = wanted ? `live${passed ? `, ${passed.toLocaleString()} not shown` : ""}${gap}` : "";
    };
    const close = () => { stream?.close(); stream = null; };
    const open = () => {
      stream = new EventSource(place.dataset.tail);
      stream.addEventListener("rows", (event) => {
        const made = new DOMParser().parseFromString(`<table><tbody>${event.data}</tbody></table>`, "text/html");
        rows.prepend(...made.querySelectorAll("tr"));
        while (rows.rows.length > MOST_ROWS) rows.lastElementChild.remove();
      });
      stream.addEventListener("passed", (event) => { passed += Number(event.data); say(); });
      stream.addEventListener("problem", (event) => { wanted = false; close(); say(); told.textContent = event.data; });
      stream.onerror = () => {
        if (stream?.readyState !== EventSource.CLOSED) return;
        wanted = false; close(); say();
        told.textContent = "The live tail was refused; another page may have too many open.";
      };
    };
    button.addEventListener("click", () => {
      wanted = !wanted; passed = 0; gap = "";
      if (wanted) { rows.replaceChildren(); open(); } else close();
      say();
    });
    document.addEventListener("visibilitychange", () => {
      if (!wanted) return;
      if (document.hidden) close();
      else { gap = `; records of the time until ${new Date().toLocaleTimeString()} are not here, the page was hidden`; open(); say(); }
    });
    say();
  }

  // -- search: tells how far it is; without this the page comes when the search is done ------------

  function search() {
    const [place, form] = [$("#found[data-search]"), $("form[role=search]")];
    if (!place || !form) return;
    let stream = null;

    const start = (query) => {
      stream?.close();
      const [line, told, stop] = ["p", "span", "button"].map((name) => document.createElement(name));
      line.className = "pages";
      told.setAttribute("role", "status");
      stop.className = "plain";
      stop.textContent = "Stop";
      line.append(told, stop);
      place.replaceChildren(line);
      const end = (words) => { stream?.close(); stream = null; stop.remove(); told.textContent = words; };
      stop.addEventListener("click", () => end(`stopped; ${told.textContent}`));
      stream = new EventSource(`${place.dataset.search}?${query}`);
      stream.addEventListener("progress", (event) => { told.textContent = event.data; });
      stream.addEventListener("problem", (event) => end(event.data));
      stream.addEventListener("found", (event) => {
        end("");
        const page = new DOMParser().parseFromString(JSON.parse(event.data), "text/html");
        place.replaceChildren(...[...page.body.childNodes].map((node) => document.importNode(node, true)));
        history.pushState(null, "", `${form.action}?${query}`);
        tail();
      });
      stream.onerror = () => { if (stream) end("The search was refused; load the page again."); };
    };
    form.addEventListener("submit", (event) => {
      const fields = new FormData(form);
      if (!fields.get("contains") && !fields.get("where")) return;
      event.preventDefault();
      start(new URLSearchParams([...fields].filter(([, value]) => value)));
    });
    place.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-more]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      start(new URL(link.href).searchParams);
    });
    addEventListener("popstate", () => location.reload());
  }

  // -- keys ---------------------------------------------------------------------------------------

  const GO = { o: "", t: "topics", g: "groups", s: "queues", x: "transactions", n: "nodes", p: "pipelines" };
  const HELP = [
    ["/", "filter"], ["j k", "next and previous row"], ["Enter", "open the row"],
    ["[ ]", "previous and next page"], [".", "pause live updates"],
    ["g o", "overview"], ["g t", "topics"], ["g g", "groups"], ["g s", "queues"], ["g x", "transactions"], ["g p", "pipelines"],
  ];
  let goes = false;

  function rows() {
    return [...document.querySelectorAll("main tbody tr")].filter((row) => $("a", row));
  }

  function step(by) {
    const all = rows();
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    if (next) $("a", next).focus();
  }

  function follow(rel) {
    const link = $(`main a[rel="${rel}"]`);
    if (link) link.click();
  }

  function help() {
    const dialog = document.createElement("dialog");
    const head = document.createElement("h2");
    head.textContent = "Keys";
    const list = document.createElement("dl");
    list.className = "facts-list";
    for (const [keys, words] of HELP) {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      const key = document.createElement("kbd");
      key.textContent = keys;
      term.append(key);
      text.textContent = words;
      list.append(term, text);
    }
    const close = document.createElement("button");
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    dialog.append(head, list, close);
    document.body.append(dialog);
    dialog.showModal();
  }

  function pause() {
    paused = !paused;
    $("#age").textContent = paused ? "paused" : "";
  }

  function pressed(event) {
    const field = event.target.closest("input, textarea, select, [contenteditable], dialog");
    if (field || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key;
    if (goes) {
      goes = false;
      if (key in GO) location.href = document.body.dataset.base + GO[key];
      return;
    }
    const acts = {
      "/": () => { const box = $("[data-filter]"); if (box) { box.focus(); event.preventDefault(); } },
      j: () => step(1), k: () => step(-1), g: () => { goes = true; },
      "[": () => follow("prev"), "]": () => follow("next"), ".": pause, "?": help,
    };
    if (key in acts) acts[key]();
  }

  function helpButton() {
    const button = document.createElement("button");
    button.className = "plain";
    button.textContent = "?";
    button.setAttribute("aria-label", "Keys");
    button.addEventListener("click", help);
    $(".side").append(button);
  }

  document.addEventListener("keydown", pressed);
  if ($(".side")) helpButton();
  columns();
  live();
  tail();
  search();
})();
