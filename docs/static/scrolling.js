// Formulas, tables and code that are wider than the page can be scrolled with the keyboard.
const wide = "pre, div.math, div.table-wrapper";

function focusable() {
  for (const part of document.querySelectorAll(wide)) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
}

addEventListener("load", focusable);
addEventListener("resize", focusable);
