const field = document.getElementById("find");
if (field) {
  const rows = [...document.querySelectorAll("#all tbody tr")];
  field.parentElement.hidden = false;
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
}
