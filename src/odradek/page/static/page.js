// What a browser adds to the pages: live parts, times in the user's zone, forms in dialogs, commands to copy.
"use strict";

// ---- times: `<time datetime>` has UTC from the server ----

function localText(when) {
  return new Date(when - when.getTimezoneOffset() * 60000).toISOString().slice(0, 23).replace("T", " ");
}

function localPictures(root) {
  for (const note of root.querySelectorAll(".picture text")) {
    const day = note.textContent.match(/^UTC, from ([0-9-]{10}) on/)?.[1];
    if (!day) continue;
    const ticks = [...note.closest("svg").querySelectorAll("text")].filter((each) => /^[0-9:]{8}\.[0-9]{3}$/.test(each.textContent));
    const times = ticks.map((each) => localText(new Date(`${day}T${each.textContent}Z`)));
    ticks.forEach((each, number) => { each.textContent = times[number].slice(11); });
    note.textContent = note.textContent.replace(`UTC, from ${day}`, `From ${times[0]?.slice(0, 10) ?? day}`);
  }
}

function localTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const when = new Date(element.dateTime);
    if (isNaN(when)) continue;
    element.title = element.textContent;
    element.textContent = localText(when);
  }
}

// ---- commands: a button that copies ----

function copyButtons(root) {
  if (!navigator.clipboard) return; // browsers have it on localhost and with TLS
  for (const code of root.querySelectorAll("[data-copy]:not(:has(button))")) {
    const text = code.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the command");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    code.append(button);
  }
}

function enhance(root) {
  localTimes(root);
  localPictures(root);
  copyButtons(root);
}

// ---- live parts: the server sends the HTML of an element that has changed ----

// A place that is found again after the content was replaced: an ancestor's id, and the path of child numbers from it.
function placeOf(element) {
  const path = [];
  let each = element;
  for (; !each.id; each = each.parentElement) path.unshift([...each.parentElement.children].indexOf(each));
  return { id: each.id, path };
}

function at(place) {
  return place.path.reduce((element, index) => element && element.children[index], document.getElementById(place.id));
}

function replaceContent(root, html) {
  if (root.contains(document.getSelection().anchorNode) && !document.getSelection().isCollapsed) return false;
  const open = [...root.querySelectorAll("details[open]")].map((each) => placeOf(each));
  const closed = [...root.querySelectorAll("details:not([open])")].map((each) => placeOf(each));
  const focused = root.contains(document.activeElement) ? document.activeElement : null;
  const focus = focused && { place: placeOf(focused), value: focused.value, start: focused.selectionStart };
  const scrolled = [...root.querySelectorAll(".table, .drawing, pre")].map((each) => [placeOf(each), each.scrollLeft, each.scrollTop]);
  root.innerHTML = html; // rendered by the server, which escapes all values
  for (const place of open) at(place)?.setAttribute("open", "");
  for (const place of closed) at(place)?.removeAttribute("open");
  for (const [place, left, top] of scrolled) at(place)?.scrollTo({ left, top, behavior: "instant" });
  const again = focus && at(focus.place);
  if (again) {
    if (focus.value !== undefined && "value" in again && again.type !== "submit") again.value = focus.value;
    again.focus({ preventScroll: true });
    if (focus.start !== undefined && focus.start !== null) again.setSelectionRange?.(focus.start, focus.start);
  }
  enhance(root);
  return true;
}

const latest = new Map(); // id → the HTML that the server sent last, and whether it is shown

function showPart(id, html) {
  const root = document.getElementById(id);
  if (root) {
    latest.set(id, { html, shown: replaceContent(root, html) });
  } else if (html) {
    location.reload(); // a page that could not be shown before, for its cluster was away
  }
}

let stream = null;
let paused = false;

function openStream() {
  if (stream || paused || document.hidden) return;
  stream = new EventSource(location.href);
  stream.addEventListener("part", (event) => {
    document.getElementById("main").classList.remove("stale");
    const { id, html } = JSON.parse(event.data);
    if (latest.get(id)?.html !== html) showPart(id, html);
  });
  stream.addEventListener("end", () => {
    closeStream();
    document.querySelector(".live")?.remove();
  });
  stream.addEventListener("error", () => document.getElementById("main").classList.add("stale"));
}

function setPaused(isPaused) {
  paused = isPaused;
  const bar = document.querySelector(".live");
  bar.querySelector("[role=status]").textContent = paused ? "Paused" : "Live";
  bar.querySelector("button").textContent = paused ? "Go on" : "Pause";
  bar.classList.toggle("paused", paused);
  (paused ? closeStream : openStream)();
}

document.addEventListener("click", (event) => { // a message that is opened does not move away
  if (event.target.closest?.("[data-pause]")) setPaused(!paused);
  else if (stream && document.querySelector(".live") && event.target.closest?.(".record > summary")) setPaused(true);
});

document.addEventListener("click", (event) => { // what was shown by then stays
  if (!event.target.matches("[data-stop]")) return;
  closeStream();
  event.target.closest("[role=status]").classList.add("stopped");
});

function closeStream() {
  stream?.close();
  stream = null;
}

function startLive() {
  if (!("live" in document.body.dataset)) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? closeStream() : openStream()));
  document.addEventListener("selectionchange", () => { // what came while text was selected
    if (!document.getSelection().isCollapsed) return;
    for (const [id, part] of latest) if (!part.shown) showPart(id, part.html);
  });
  document.querySelector(".live")?.removeAttribute("hidden");
  openStream();
}

// ---- forms: their own pages, shown as a dialog ----

async function showDialog(link) {
  const response = await fetch(link.href);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const form = page.querySelector("main form.fields");
  if (!form) {
    location.href = link.href;
    return;
  }
  const dialog = document.createElement("dialog");
  const heading = page.querySelector("main h1");
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Cancel";
  close.addEventListener("click", () => dialog.close());
  (form.querySelector(".buttons") ?? form).append(close);
  dialog.append(...(heading ? [heading] : []), ...page.querySelectorAll("main > p"), form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.setAttribute("aria-label", heading?.textContent ?? link.textContent);
  enhance(dialog);
  dialog.showModal();
}

function onLink(selector, show) { // a plain click: others open tabs and windows
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(selector);
    if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(link).catch(() => { location.href = link.href; });
  });
}

onLink("a[data-dialog]", showDialog);

document.addEventListener("change", (event) => { // a filter's choices apply at once
  if (event.target.matches("form[method=get] select, form[method=get] input[type=checkbox]")) event.target.form.requestSubmit();
});

// ---- plays: the page of the next moment has the new content of #moment ----

let moments = 0; // those that were requested: an answer that is not the last one's is dropped
let pending = null;

async function showMoment(address) {
  const asked = ++moments;
  clearTimeout(pending);
  const response = await fetch(address);
  const part = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("moment");
  if (asked !== moments) return;
  if (!response.ok || !part) {
    location.href = address;
    return;
  }
  replaceContent(document.getElementById("moment"), part.innerHTML);
  history.replaceState(null, "", address);
  awaitPlays();
}

function awaitPlays() { // the server answers within half a second; generations that take longer come later
  if (!document.querySelector("#moment [data-pending]")) return;
  pending = setTimeout(() => showMoment(location.href).catch(() => { pending = setTimeout(awaitPlays, 1000); }), 50);
}

function startPlay() {
  const bar = document.querySelector("[data-play]");
  if (!bar) return;
  const button = bar.querySelector("button");
  let timer = null;
  const stop = () => {
    clearTimeout(timer);
    timer = null;
    button.textContent = "Play";
  };
  const step = async () => {
    if (document.querySelector("#moment [data-pending]")) {
      timer = setTimeout(step, 200);
      return;
    }
    const speed = bar.querySelector("select").selectedOptions[0];
    const next = document.querySelector(speed.dataset.by ? "#moment a[data-change]" : "#moment a[rel=next]");
    if (!next) return stop();
    await showMoment(next.href);
    if (timer !== null) timer = setTimeout(step, Number(speed.value));
  };
  button.addEventListener("click", () => {
    if (timer !== null) return stop();
    button.textContent = "Pause";
    timer = setTimeout(step, 0);
  });
  onLink("a[data-moment]", (link) => showMoment(link.href));
  document.addEventListener("keydown", (event) => {
    const rel = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    if (!rel || event.altKey || event.target.closest?.("input, select, textarea, .drawing, .table")) return;
    const link = document.querySelector(`#moment a[rel=${rel}]`);
    if (link) showMoment(link.href);
  });
  bar.hidden = false;
  awaitPlays();
}

enhance(document);
startLive();
startPlay();
