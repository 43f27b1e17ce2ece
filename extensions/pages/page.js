// Keeps a page as its server would draw it now: asks for it again when told of a change, and
// replaces the parts that differ. Without this script the pages and their forms work, too.
"use strict";
{
  const body = document.body, connection = document.getElementById("connection");
  const topics = body.dataset.topics === undefined ? null : JSON.parse(body.dataset.topics);
  const parts = () => document.querySelectorAll("[data-live]");
  const sent = new Map([...parts()].map(part => [part.id, part.innerHTML]));  // as the server sent them
  const drawn = new WeakMap();  // the figure of each chart, as text
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
    }
  }

  // Whether somebody is filling in a form of the part.
  function inUse(part) {
    const fields = [...part.querySelectorAll("input:not([type=hidden]), select")];
    const chosen = field => field.tagName === "SELECT" ? field.selectedIndex > 0 : field.value !== field.defaultValue;
    return fields.some(field => field === document.activeElement || chosen(field));
  }

  const focusable = part => [...part.querySelectorAll("a, button, summary, [tabindex]")];

  function replace(part, fresh) {
    const focused = focusable(part).indexOf(document.activeElement);
    const opened = [...part.querySelectorAll("details")].map(each => each.open);
    const scrolled = [...part.querySelectorAll(".scroll")].map(each => each.scrollLeft);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll("details").forEach((each, index) => { each.open = opened[index] ?? false; });
    part.querySelectorAll(".scroll").forEach((each, index) => {
      if (scrolled[index]) each.scrollLeft = scrolled[index];  // it has the whole page laid out
    });
    if (focused >= 0) focusable(part)[focused]?.focus({preventScroll: true});
  }

  async function show(page) {
    body.dataset.seen = page.body.dataset.seen;
    for (const part of parts()) {
      const fresh = page.getElementById(part.id), text = fresh?.innerHTML;
      if (text === undefined || sent.get(part.id) === text) continue;
      await pause();
      if (inUse(part)) continue;
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
        const answer = await fetch(location.href, {headers, cache: "no-store"});
        const page = await parsed(answer);
        if (answer.ok) { await show(page); connection.textContent = ""; } else connection.textContent = wordsOf(page);
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

  document.addEventListener("submit", async event => {
    const form = event.target, said = document.getElementById("said");
    if (form.getAttribute("action") !== "act") return;
    event.preventDefault();
    if (form.dataset.ask && !confirm(form.dataset.ask)) return;
    // A button that is disabled would not be sent.
    const fields = new URLSearchParams(new FormData(form, event.submitter));
    const buttons = form.querySelectorAll("button");
    buttons.forEach(button => { button.disabled = true; });
    said.textContent = "…";
    try {
      const answer = await fetch("act", {method: "POST", body: fields});
      said.textContent = wordsOf(await parsed(answer));
      said.className = answer.ok ? "done" : "refused";
      if (answer.ok) { form.reset(); await refresh(false); }
    } catch {
      said.textContent = "Not connected: it may or may not have been done.";
      said.className = "refused";
    } finally {
      buttons.forEach(button => { button.disabled = false; });
    }
  });

  if (typeof draw === "function") {
    drawAll(true);
    dark.addEventListener("change", () => drawAll(true));
  }
  if (sent.size) listen();
}
