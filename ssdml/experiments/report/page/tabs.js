// One tab per data set; without scripts all of them are shown below each other.
"use strict";

const tabs = [...document.querySelectorAll(".tabs a")];
const sheets = tabs.map((tab) => document.getElementById(tab.hash.slice(1)));

function showSheet(i, focus = false) {
  tabs.forEach((tab, other) => {
    tab.setAttribute("aria-selected", String(other === i));
    tab.tabIndex = other === i ? 0 : -1;
    sheets[other].classList.toggle("away", other !== i);
  });
  if (focus) tabs[i].focus();
}

// The tab of the address: of a data set, or of a heading in it.
function follow() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  const i = target ? sheets.findIndex((sheet) => sheet.contains(target)) : -1;
  showSheet(Math.max(i, 0));
  if (i >= 0 && target !== sheets[i]) target.scrollIntoView();
}

document.querySelector(".tabs").setAttribute("role", "tablist");
tabs.forEach((tab, i) => {
  tab.setAttribute("role", "tab");
  tab.id = `tab-${i}`;
  tab.setAttribute("aria-controls", sheets[i].id);
  sheets[i].setAttribute("role", "tabpanel");
  sheets[i].setAttribute("aria-labelledby", tab.id);
  tab.addEventListener("click", (event) => {
    event.preventDefault();
    history.replaceState(null, "", tab.hash);
    showSheet(i);
    window.scrollTo(0, 0);
  });
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) showSheet((i + step + tabs.length) % tabs.length, true);
  });
});
window.addEventListener("hashchange", follow);
follow();
