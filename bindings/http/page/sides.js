// The conversations and the server at both sides; on a narrow screen they lie over the messages.
import {$} from "./dom.js";
import * as panel from "./panel.js";

export const narrow = matchMedia("(max-width: 62rem)");

export function toggle(side, open_it) {
  $(side).hidden = !open_it;
  $("show-" + side).setAttribute("aria-expanded", open_it);
  if (!narrow.matches) localStorage.setItem("fasa.side." + side, open_it ? "open" : "closed");
  if (open_it && side === "server") panel.watch();
}
for (const side of ["chats", "server"]) {
  const button = $("show-" + side);
  button.onclick = () => {
    toggle(side, $(side).hidden);
    if (narrow.matches && !$(side).hidden) $("hide-" + side).focus();
  };
  $("hide-" + side).onclick = () => {
    toggle(side, false);
    button.focus();
  };
  const place = () => toggle(side, !narrow.matches &&
                                   localStorage.getItem("fasa.side." + side) !== "closed");
  narrow.addEventListener("change", place);
  place();
}
document.addEventListener("click", event => {  // beside an open side, on a phone
  if (!narrow.matches || event.target.closest("#chats, #server, header, dialog")) return;
  for (const side of ["chats", "server"]) if (!$(side).hidden) toggle(side, false);
});

// Closes a side that lies over the messages; returns whether there was one.
export function close_side() {
  const side = narrow.matches && ["chats", "server"].find(one => !$(one).hidden);
  if (!side) return false;
  toggle(side, false);
  $("show-" + side).focus();
  return true;
}
