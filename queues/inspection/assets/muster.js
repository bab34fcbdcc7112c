// Keeps a page fresh, moves between hosts by arrow keys, and puts "/" into the search. Pages work without it.
(() => {
  "use strict";
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  let main = document.getElementById("content");
  const seconds = Number(main.dataset.refresh || 0);

  // ---- fresh content, put in place piece by piece, so that focus, scrolling and what is open stay.

  const same = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;

  const renew = (shown, fresh) => {
    if (shown.nodeType !== Node.ELEMENT_NODE) {
      if (shown.nodeValue !== fresh.nodeValue) shown.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...shown.attributes]) {
      if (!fresh.hasAttribute(name) && !(shown.nodeName === "DETAILS" && name === "open")) shown.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      const kept = (shown.nodeName === "DETAILS" && name === "open") || name === "tabindex" || name === "hidden";
      if (!kept && shown.getAttribute(name) !== value) shown.setAttribute(name, value);
    }
    if (shown.nodeName === "INPUT" || shown.nodeName === "SELECT") return;
    const were = [...shown.childNodes];
    const are = [...fresh.childNodes];
    are.forEach((child, at) => {
      const old = were[at];
      if (!old) shown.append(child);
      else if (same(old, child)) renew(old, child);
      else old.replaceWith(child);
    });
    were.slice(are.length).forEach((child) => child.remove());
  };

  const refresh = async () => {
    if (!document.hidden && live.getAttribute("aria-pressed") === "true") {
      try {
        const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
        if (answer.ok) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          for (const id of ["content", "fresh"]) {
            const fresh = page.getElementById(id);
            if (fresh) renew(document.getElementById(id), fresh);
          }
          grids();
        }
        live.classList.toggle("lost", !answer.ok);
      } catch {
        live.classList.add("lost");
      }
    }
    setTimeout(refresh, seconds * 1000);
  };

  if (seconds) {
    live.hidden = false;
    live.addEventListener("click", () => {
      const on = live.getAttribute("aria-pressed") !== "true";
      live.setAttribute("aria-pressed", String(on));
      live.textContent = on ? "Live" : "Paused";
      said.textContent = on ? "The page refreshes itself" : "The page stays as it is";
    });
    setTimeout(refresh, seconds * 1000);
  }

  // ---- hosts: one stop for the Tab key in each rack, arrow keys within.

  function grids() {
    for (const grid of document.querySelectorAll("[data-grid]")) {
      const cells = [...grid.querySelectorAll("summary")];
      const held = cells.find((cell) => cell.tabIndex === 0 && cell.hasAttribute("tabindex")) || cells[0];
      for (const cell of cells) cell.tabIndex = cell === held ? 0 : -1;
    }
    for (const hint of document.querySelectorAll(".hint")) hint.hidden = false;
  }

  const nearest = (from, all, key) => {
    const box = (cell) => cell.getBoundingClientRect();
    const at = box(from);
    const down = key === "ArrowDown" ? 1 : -1;
    const rows = all.filter((cell) => down * (box(cell).top - at.top) > 4);
    if (!rows.length) return null;
    const top = rows.map((cell) => box(cell).top).reduce((a, b) => (down > 0 ? Math.min(a, b) : Math.max(a, b)));
    const row = rows.filter((cell) => Math.abs(box(cell).top - top) < 4);
    return row.reduce((a, b) => (Math.abs(box(a).left - at.left) <= Math.abs(box(b).left - at.left) ? a : b));
  };

  const move = (cell, key) => {
    const grid = cell.closest("[data-grid]");
    const cells = [...grid.querySelectorAll("summary")];
    const all = [...document.querySelectorAll("[data-grid] summary")];
    let next = null;
    if (key === "ArrowRight") next = all[all.indexOf(cell) + 1];
    else if (key === "ArrowLeft") next = all[all.indexOf(cell) - 1];
    else if (key === "Home") next = cells[0];
    else if (key === "End") next = cells[cells.length - 1];
    else next = nearest(cell, all, key);
    if (!next) return;
    for (const other of next.closest("[data-grid]").querySelectorAll("summary")) other.tabIndex = other === next ? 0 : -1;
    next.focus();
  };

  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const inGrid = event.target.closest && event.target.closest("[data-grid] summary");
    if (inGrid && ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) {
      event.preventDefault();
      move(inGrid, event.key);
    } else if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      document.getElementById("find").focus();
    } else if (event.key === "Escape") {
      for (const open of document.querySelectorAll("details.host[open]")) {
        open.open = false;
        open.querySelector("summary").focus();
      }
    }
  });

  document.addEventListener("click", (event) => {
    for (const open of document.querySelectorAll("details.host[open]")) {
      if (!open.contains(event.target)) open.open = false;
    }
  });

  grids();
})();
