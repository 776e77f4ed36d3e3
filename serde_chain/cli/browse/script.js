// Keeps the newest page of a topic up to date, while the box "Live" is checked; fills in a picked time; expands rows.
"use strict";

const PAUSE_MS = 1500;
const MOST_ROWS = 200;

const box = document.querySelector("input[data-tail]");
if (box) {
  const rows = document.querySelector("table.rows tbody");
  const status = box.closest("p").querySelector("[role=status]");
  const address = new URL(box.dataset.tail, location.href);
  let waiting = null;

  const update = async () => {
    waiting = null;
    try {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      const part = document.createElement("template");
      part.innerHTML = await answer.text();
      const position = answer.headers.get("x-position");
      if (position) address.searchParams.set("at", position);
      rows.prepend(part.content);
      const topic = answer.headers.get("x-topic");
      if (topic) document.querySelector("p.facts").textContent = topic;
      while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
      status.textContent = `updated ${new Date().toISOString().slice(11, 19)} UTC`;
    } catch (error) {
      status.textContent = `not updated: ${error.message}`;
    }
    if (box.checked) waiting = setTimeout(update, PAUSE_MS);
  };

  box.addEventListener("change", () => {
    clearTimeout(waiting);
    waiting = null;
    if (box.checked) update();
    else status.textContent = "";
  });
}

for (const picker of document.querySelectorAll("input[data-into]")) {
  picker.hidden = false;
  picker.addEventListener("change", () => {
    picker.form.elements[picker.dataset.into].value = picker.value;
  });
}

// "toggle" does not bubble; rows that come later are expanded too.
document.addEventListener(
  "toggle",
  async (event) => {
    const details = event.target;
    const from = details.dataset.from;
    if (!from || !details.open) return;
    details.querySelector(":scope > div.problem")?.remove(); // asked for again
    if (details.children.length > 1) return;
    const part = document.createElement("div");
    details.append(part);
    try {
      const answer = await fetch(from);
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      part.innerHTML = await answer.text();
    } catch (error) {
      part.textContent = `not shown: ${error.message}`;
      part.className = "problem";
    }
  },
  true,
);
