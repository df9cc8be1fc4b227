"use strict";
/* Open the part of the page that a link leads to, and every part that is printed. */
{
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")].filter((part) => !part.matches(".all"));
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of closed) part.open = false;
  });
}
