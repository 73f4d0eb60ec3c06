for (const head of document.querySelectorAll("th")) {
  head.style.cursor = "pointer";
  head.title = "sort";
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], column = head.cellIndex;
    const key = row => {
      const cell = row.cells[column], value = cell.dataset.value;
      return value === undefined ? cell.textContent : Number(value);
    };
    const down = head.dataset.order !== "down";
    head.dataset.order = down ? "down" : "up";
    const order = (a, b) => key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
    const rows = [...body.rows].sort(order);
    body.append(...(down ? rows.reverse() : rows));
  });
}
