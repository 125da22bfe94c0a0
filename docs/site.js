// Browsers start no search for pages that are opened from files: this says how to serve them.
if (location.protocol === "file:") {
  document.addEventListener("DOMContentLoaded", () => {
    const note = document.createElement("p");
    note.className = "odradek-from-files md-typeset";
    note.innerHTML =
      "Search needs a server: <code>python3 -m http.server --directory site</code>, then open <code>http://localhost:8000</code>";
    document.body.prepend(note);
  });
}
