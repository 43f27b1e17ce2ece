// Keeps a page as its server would draw it now: asks for it again when told of a change, and
// replaces the parts that differ. Without this script the pages and their forms work, too.
"use strict";
{
  const body = document.body, connection = document.getElementById("connection");
  const topics = body.dataset.topics === undefined ? null : JSON.parse(body.dataset.topics);
  const parts = () => document.querySelectorAll("[data-live]");
  const sent = new Map([...parts()].map(part => [part.id, part.innerHTML]));  // as the server sent them
  const picked = new WeakSet();  // the charts whose clicks are heard
  const drawn = new WeakMap();  // the figure of each chart, as text
  const TYPED = 250;  // ms after the last key until a filter is used
  const RETRY = 5000;  // ms until a connection that was refused is tried again
  let figures = figuresOf(document), source = null, busy = false, again = false;

  // A moment for the reader's clicks, between two pieces of work.
  const pause = () => new Promise(done => setTimeout(done));

  function figuresOf(page) { return JSON.parse(page.getElementById("figures").textContent); }

  async function drawAll(anew) {
    for (const place of document.querySelectorAll(".chart")) {
      const figure = figures[place.dataset.figure] ?? null, text = JSON.stringify(figure);
      if (!anew && drawn.get(place) === text) continue;
      drawn.set(place, text);
      await pause();
      draw(place, figure);
      if (place.dataset.figure === "curves") pick(place);
    }
  }

  // Where a form asks for an epoch, a click on the curve answers, and the curve shows the answer.
  const epochField = () => document.querySelector("[data-epoch]");

  function pick(place) {
    if (!place.on || !epochField()) return;
    if (!picked.has(place)) place.on("plotly_click", event => {
      const field = epochField();
      if (!field) return;
      field.value = event.points[0].x;
      field.dispatchEvent(new Event("input", {bubbles: true}));
    });
    picked.add(place);
    markEpoch(place);
  }

  function markEpoch(place) {
    const at = epochField().value, line = {color: css("--accent"), width: 1.5, dash: "dot"};
    const shapes = at === epochField().defaultValue ? [] : [{type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line}];
    if (shapes.length || place.layout.shapes?.length) Plotly.relayout(place, {shapes});
  }

  // Somebody is filling in a form of the part. Boxes that choose trials are known from the address.
  function inUse(part) {
    const fields = [...part.querySelectorAll("input:not([type=hidden], [name=n]), select")];
    const preset = field => [...field.options].findIndex(each => each.defaultSelected);
    const changed = field => field.tagName === "SELECT" ? field.selectedIndex !== Math.max(0, preset(field))
      : field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
    return fields.some(field => field === document.activeElement || changed(field));
  }

  const focusable = part => [...part.querySelectorAll("a, button, input, summary, [tabindex]")];

  function replace(part, fresh) {
    const focused = focusable(part).indexOf(document.activeElement);
    const opened = [...part.querySelectorAll("details")].map(each => each.open);
    const answers = [...part.querySelectorAll("output")].map(each => [each.textContent, each.className]);
    const scrolled = [...part.querySelectorAll(".scroll")].map(each => each.scrollLeft);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll("details").forEach((each, index) => { each.open = opened[index] ?? false; });
    part.querySelectorAll(".scroll").forEach((each, index) => {
      if (scrolled[index]) each.scrollLeft = scrolled[index];  // it has the whole page laid out
    });
    part.querySelectorAll("output").forEach((each, index) => { [each.textContent, each.className] = answers[index] ?? ["", ""]; });
    if (focused >= 0) focusable(part)[focused]?.focus({preventScroll: true});
    tick(part);
  }

  const chosen = () => new Set((new URLSearchParams(location.search).get("chosen") ?? "").split(",").filter(Boolean));

  // Has the boxes of a part as the address says: it may be newer than what was drawn.
  function tick(part) {
    const numbers = chosen();
    for (const box of part.querySelectorAll("input[name=n]")) box.checked = numbers.has(box.value);
  }

  // ``asked``: the page's address. If its reader has sorted the table since, ``list`` shows that part.
  async function show(page, asked) {
    body.dataset.seen = page.body.dataset.seen;
    for (const part of parts()) {
      const fresh = page.getElementById(part.id), text = fresh?.innerHTML;
      if (text === undefined || sent.get(part.id) === text) continue;
      await pause();
      if (inUse(part) || (asked !== location.href && part.closest("#trials"))) continue;
      sent.set(part.id, text);
      replace(part, fresh);
    }
    figures = figuresOf(page);
    if (typeof draw === "function") await drawAll(false);
  }

  async function parsed(answer) { return new DOMParser().parseFromString(await answer.text(), "text/html"); }
  const wordsOf = page => page.getElementById("words")?.textContent ?? page.body.textContent.trim();

  // ``live``: what was drawn for another page since the last change will do.
  async function refresh(live) {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        const headers = live ? {"X-Penstock-Live": "1"} : {};
        const asked = location.href, answer = await fetch(asked, {headers, cache: "no-store"});
        const page = await parsed(answer);
        if (answer.ok) { await show(page, asked); connection.textContent = ""; } else connection.textContent = wordsOf(page);
      } while (again);
    } catch {
      connection.textContent = "Not connected: trying again.";
    } finally {
      busy = false;
    }
  }

  function listen() {
    if (source || document.hidden) return;
    source = new EventSource(`events?seen=${body.dataset.seen}`);
    source.onopen = () => { connection.textContent = ""; };
    source.onmessage = event => {
      const told = JSON.parse(event.data), concern = topics === null ? told : told.filter(each => topics.includes(each));
      // What only tells of events that the page has been drawn from is no news to it.
      const known = Number(event.lastEventId) <= Number(body.dataset.seen);
      if (told.includes("all") || concern.includes("time") || (concern.length && !known)) refresh(true);
    };
    source.onerror = () => {
      const refused = source.readyState === EventSource.CLOSED;
      connection.textContent = refused ? "Not connected: open the address that penstock ui prints." : "Not connected: trying again.";
      if (refused) { source = null; setTimeout(listen, RETRY); }
    };
  }

  // A browser has few connections for each server: a page that nobody sees gives its own up.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; } else listen();
  });

  // The table of trials, as the address asks for it. No other part is drawn, so that sorting waits for little.
  const table = document.getElementById("table"), search = document.getElementById("search");
  let wanted = 0, typed = 0;

  async function list() {
    const mine = ++wanted;
    try {
      const page = await parsed(await fetch(`trials${location.search}`, {cache: "no-store"}));
      for (const part of page.querySelectorAll("[data-live]")) {
        await pause();
        if (mine !== wanted) return;
        const text = part.innerHTML, old = document.getElementById(part.id);
        if (!old || sent.get(part.id) === text) continue;
        sent.set(part.id, text);
        replace(old, part);
      }
    } catch {
      connection.textContent = "Not connected: trying again.";
    }
  }

  // Goes to another order, filter or page of the table. What is chosen stays.
  function go(address, how) {
    const to = new URL(address, location.href), numbers = [...chosen()].join();
    if (numbers) to.searchParams.set("chosen", numbers); else to.searchParams.delete("chosen");
    history[how](null, "", to);
    list();
  }

  function filtered() {
    const to = new URL(location.href), text = search.elements.filter.value;
    if (text) to.searchParams.set("filter", text); else to.searchParams.delete("filter");
    to.searchParams.delete("page");
    go(to, "replaceState");
  }

  if (table && search) {
    table.addEventListener("click", event => {
      const link = event.target.closest("a");
      const plain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
      if (!link?.getAttribute("href").startsWith("study?") || !plain) return;
      event.preventDefault();
      go(link.href, "pushState");
      search.elements.filter.value = new URLSearchParams(location.search).get("filter") ?? "";
    });
    table.addEventListener("change", event => {
      if (event.target.name !== "n") return;
      const numbers = chosen(), to = new URL(location.href);
      if (event.target.checked) numbers.add(event.target.value); else numbers.delete(event.target.value);
      if (numbers.size) to.searchParams.set("chosen", [...numbers].join()); else to.searchParams.delete("chosen");
      history.replaceState(null, "", to);
    });
    search.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(filtered, TYPED); });
    search.addEventListener("submit", event => { event.preventDefault(); clearTimeout(typed); filtered(); });
    addEventListener("popstate", () => {
      search.elements.filter.value = new URLSearchParams(location.search).get("filter") ?? "";
      list();
    });
    tick(table);
  }

  // Sends a form's fields, and says the answer where the form has a place for it; returns if it was done.
  async function send(form, fields, isWanted = () => true) {
    const place = form.querySelector("output") ?? document.getElementById("said");
    const say = (words, kind) => { if (isWanted()) { place.textContent = words; place.className = kind; } };
    try {
      const answer = await fetch("act", {method: "POST", body: fields});
      say(wordsOf(await parsed(answer)), answer.ok ? "done" : "refused");
      return answer.ok;
    } catch {
      say("Not connected: whether it was done is not known.", "refused");
      return false;
    }
  }

  document.addEventListener("submit", async event => {
    const form = event.target;
    if (form.getAttribute("action") !== "act") return;
    event.preventDefault();
    if (form.dataset.ask && !confirm(form.dataset.ask)) return;
    // A button that is disabled would not be sent.
    const fields = new URLSearchParams(new FormData(form, event.submitter));
    const buttons = form.querySelectorAll("button");
    buttons.forEach(button => { button.disabled = true; });
    clearTimeout(asking);
    asked++;
    const done = await send(form, fields);
    buttons.forEach(button => { button.disabled = false; });
    if (!done || fields.get("action") === form.dataset.asks) return;
    form.reset();
    await refresh(false);
  });

  // A form that can say what it would cost is asked while it is filled in.
  let asked = 0, asking = 0;
  document.addEventListener("input", event => {
    const form = event.target.form;
    if (event.target.dataset.epoch !== undefined) document.querySelectorAll("#curves .js-plotly-plot").forEach(markEpoch);
    if (!form?.dataset.asks) return;
    clearTimeout(asking);
    asking = setTimeout(() => {
      if (!form.isConnected || !form.checkValidity()) return;
      const fields = new URLSearchParams(new FormData(form)), mine = ++asked;
      fields.set("action", form.dataset.asks);
      send(form, fields, () => mine === asked);
    }, TYPED);
  });

  if (typeof draw === "function") {
    drawAll(true);
    dark.addEventListener("change", () => drawAll(true));
  }
  if (sent.size) listen();
}
