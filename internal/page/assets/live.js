// Where there is something new, the same page is asked for again, and its content put in place.
"use strict";
(() => {
  const says = document.getElementById("live");
  if (document.body.dataset.live !== "yes" || !window.EventSource) return;
  let first = true, busy = false, again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const typing = document.activeElement && document.activeElement.matches("input, textarea");
      if (!typing) document.querySelector("main").replaceChildren(...page.querySelector("main").childNodes);
      document.querySelector(".brand .dot").className = page.querySelector(".brand .dot").className;
      const stamps = page.querySelectorAll("footer > span:not(#live)");
      document.querySelectorAll("footer > span:not(#live)").forEach((old, i) => { old.textContent = stamps[i].textContent; });
      says.textContent = "Live";
    } catch {
      says.textContent = "Not live: the process does not answer";
    }
    busy = false;
    if (again) { again = false; refresh(); }
  };
  const events = new EventSource("/events");
  events.onmessage = () => { if (first) { first = false; says.textContent = "Live"; } else refresh(); };
  events.onerror = () => { says.textContent = "Not live: the process does not answer"; };
})();
