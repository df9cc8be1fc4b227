"use strict";
/* Show two graphs side by side: what is drawn, which node is selected, and its partners. */

/* Nodes of a part of a large graph, and the most that are drawn at a time. */
const PART = 150;
const MOST = 300;
/* Graphs that are drawn for the printer, of a page with many models. */
const PRINTED = 100;
/* Nodes of a graph that is drawn as a whole at first. */
const SMALL = 60;

function make(tag, parent, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

function push(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}

/* Index the nodes of one side by the values that they read and compute, and by region. */
function indexed(nodes, inputs, outputs) {
  const side = { nodes, producer: new Map(), readers: new Map(), regions: new Map(), inputs: new Set(inputs), outputs: new Set(outputs) };
  nodes.forEach((node, index) => {
    node.s ||= "same";
    for (const value of node.u || []) if (value) side.producer.set(value, index);
    for (const value of node.i || []) push(side.readers, value, index);
    if (node.r !== undefined) push(side.regions, node.r, index);
  });
  side.near = (index) => [
    ...(nodes[index].i || []).map((value) => side.producer.get(value)).filter((each) => each !== undefined),
    ...(nodes[index].u || []).flatMap((value) => side.readers.get(value) || []),
  ];
  return side;
}

class GraphView {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector("script").textContent);
    this.one = root.dataset.sides === "1";
    this.hops = 1;
    this.panes = [...root.querySelectorAll(".pane")];
    this.controls(root.querySelector(".bar"));
    this.list = new NodeTable(root.querySelector(".all"), (side, index) => this.choose(side, index));
    this.opened = Number(root.dataset.opened ?? -1);
    const holds = (test) => this.data.graphs.findIndex((graph) => [...graph.before, ...graph.after].some(test));
    const failed = holds((node) => node.r === this.opened);
    this.open(Math.max(0, failed >= 0 ? failed : holds((node) => node.r !== undefined)));
  }

  controls(bar) {
    const labelled = (text, change, short) => {
      const select = make("select", make("label", bar, text), undefined, short ? { class: "short" } : {});
      select.addEventListener("change", () => change(select));
      return select;
    };
    const button = (text, label, act) => make("button", bar, text, { type: "button", "aria-label": label }).addEventListener("click", act);
    if (this.data.graphs.length > 1) {
      this.graphSelect = labelled("graph", (select) => this.open(Number(select.value)));
      this.data.graphs.forEach((graph, index) => make("option", this.graphSelect, graph.name, { value: index }));
    }
    this.viewSelect = labelled("draw", () => this.redraw());
    button("‹", "previous", () => this.step(-1));
    button("›", "next", () => this.step(1));
    this.hopSelect = labelled("neighbours", (select) => { this.hops = Number(select.value); this.redraw(); }, true);
    for (const hops of [0, 1, 2, 3, 5]) make("option", this.hopSelect, hops, { value: hops });
    this.hopSelect.value = this.hops;
    button("−", "smaller", () => this.drawings.forEach((each) => each.zoom(each.scale / 1.25)));
    button("+", "larger", () => this.drawings.forEach((each) => each.zoom(each.scale * 1.25)));
    button("fit", "fit the window", () => this.drawings.forEach((each) => each.fit()));
  }

  /* Show one graph of the model: the main graph, a function, a body of a loop. */
  open(number) {
    const graph = this.data.graphs[number];
    this.number = number;
    if (this.graphSelect) this.graphSelect.value = number;
    for (const node of graph.after) {
      if (node.o === undefined) for (const key of "loiuad") node[key] = graph.before[node.p][key];
    }
    this.graph = graph;
    this.sides = [graph.before, graph.after].map((nodes, at) => indexed(nodes, graph.inputs[at], graph.outputs[at]));
    if (this.one) this.sides.pop();
    // A node whose graphs or function changed is the same itself.
    for (const side of this.sides) for (const node of side.nodes) node.h = this.inner(graph, node).some((each) => this.changes(each));
    const key = this.root.querySelector(".key.holds");
    if (key) key.hidden = !this.sides.some((side) => side.nodes.some((node) => node.h));
    this.drawings = this.sides.map((side, at) => {
      const fresh = this.panes[at].cloneNode(false);
      this.panes[at].replaceWith(fresh);
      this.panes[at] = fresh;
      return new Drawing(fresh, side, (index) => this.choose(at, index));
    });
    this.selected = null;
    this.views();
    this.list.fill(this.sides);
    this.redraw();
  }

  /* Return the graphs inside of a node: the bodies of an If or Loop, the function that it calls. */
  inner(graph, node) {
    this.named ||= new Map(this.data.graphs.map((each) => [each.name, each]));
    const output = (node.u || []).find(Boolean) ?? "?";
    const bodies = (node.a || []).filter(([, text]) => text === "graph" || text === "graphs").flatMap(([name]) => {
      const path = `${graph.name} > ${node.o} ${output}.${name}`;
      return this.data.graphs.filter((each) => each.name === path || (each.name.startsWith(`${path}[`) && each.name.endsWith("]")));
    });
    return [...bodies, this.named.get(`function ${node.d || ""}:${node.o}`)].filter(Boolean);
  }

  /* Tell whether a graph, or one inside of it, is not the same in both models. */
  changes(graph) {
    this.known ||= new Map();
    if (this.known.has(graph)) return this.known.get(graph);
    this.known.set(graph, false); // a damaged model may have functions that call themselves
    const nodes = [...graph.before, ...graph.after];
    const found = nodes.some((node) => (node.s || "same") !== "same" || (node.o && this.inner(graph, node).some((each) => this.changes(each))));
    this.known.set(graph, found);
    return found;
  }

  /* List what can be drawn; what is small enough to see at once comes first. */
  views() {
    const views = [];
    const most = Math.max(...this.sides.map((side) => side.nodes.length));
    const differ = Math.max(...this.sides.map((side) => side.nodes.filter((node) => node.r !== undefined).length));
    const regions = [...new Set(this.sides.flatMap((side) => [...side.regions.keys()]))].sort((a, b) => a - b);
    if (most <= PART) views.push({ kind: "whole", text: "the whole graph" });
    if (differ && differ <= PART && regions.length > 1) views.push({ kind: "changes", text: this.one ? "all operators" : "all that changed" });
    for (const region of regions) {
      const [name, what] = this.data.regions[region];
      views.push({ kind: "region", region, text: `${shortened(name, 40)}${what && `, ${what}`}` });
    }
    if (most > PART) {
      for (let start = 0; start < most; start += PART) {
        views.push({ kind: "part", start, text: `nodes ${start + 1} to ${Math.min(start + PART, most)} of ${most}` });
      }
    }
    this.allViews = views;
    this.viewSelect.replaceChildren();
    views.forEach((view, index) => make("option", this.viewSelect, view.text, { value: index }));
    // In a larger graph the top is seldom what a reader looks for, but what failed or changed most.
    const first = regions.includes(this.opened) ? this.opened : regions[0];
    this.viewSelect.value = most <= SMALL ? 0 : Math.max(0, views.findIndex((view) => view.kind === "region" && view.region === first));
  }

  get view() {
    return this.allViews[Number(this.viewSelect.value)] || { kind: "whole" };
  }

  step(by) {
    const next = Number(this.viewSelect.value) + by;
    if (next < 0 || next >= this.allViews.length) return;
    this.viewSelect.value = next;
    this.redraw();
  }

  /* Return the positions of the nodes to draw, for each side. */
  shown() {
    const { kind, region, start } = this.view;
    if (kind === "whole") return this.sides.map((side) => side.nodes.map((_, index) => index));
    const picked = this.sides.map((side) => new Set(
      kind === "region" ? side.regions.get(region) : kind === "changes" ? [...side.regions.values()].flat() : []));
    if (kind === "part") {
      for (let i = start; i < Math.min(start + PART, this.sides[0].nodes.length); i++) picked[0].add(i);
      const regions = new Set([...picked[0]].map((index) => this.sides[0].nodes[index].r));
      this.sides[1]?.nodes.forEach((node, index) => {
        if (node.p === undefined ? regions.has(node.r) : picked[0].has(node.p)) picked[1].add(index);
      });
    } else {
      this.sides.forEach((side, at) => {
        let edge = [...picked[at]];
        for (let hop = 0; hop < this.hops; hop++) {
          edge = edge.flatMap(side.near).filter((index) => !picked[at].has(index));
          edge.forEach((index) => picked[at].add(index));
        }
      });
      // What surrounds a region is drawn on both sides.
      if (this.sides.length > 1) {
        [...picked].map((set) => [...set]).forEach((indices, at) => indices.forEach((index) => {
          const partner = this.sides[at].nodes[index].p;
          if (partner !== undefined) picked[1 - at].add(partner);
        }));
      }
    }
    return picked.map((set) => [...set].sort((a, b) => a - b));
  }

  redraw() {
    const shown = this.shown();
    this.drawings.forEach((drawing, at) => drawing.draw(shown[at].slice(0, MOST), "No node of this part is here."));
    this.hopSelect.disabled = !["region", "changes"].includes(this.view.kind);
    const counts = shown.map((indices, at) => {
      const drawn = Math.min(indices.length, MOST);
      return `${this.one ? "" : at ? "after: " : "before: "}${drawn} of ${this.sides[at].nodes.length} nodes`;
    });
    // A pane is no higher than its drawing, and leaves room for the rest of the page.
    for (const { pane, root, size, scale } of this.drawings) {
      pane.style.height = `min(${root ? Math.ceil(size[1] * scale) + 4 : 0}px, ${HIGHEST * 100}vh)`;
    }
    const more = this.root.querySelector(".node.more") ? " A box with … means nodes outside the drawn part." : "";
    const cut = shown.some((indices) => indices.length > MOST) ? ` At most ${MOST} are drawn at a time; the list below has all.` : "";
    const what = this.hopSelect.disabled ? "Drawn" : "Drawn with neighbours and what served only them";
    this.root.querySelector(".drawn").textContent = `${what}: ${counts.join(", ")}.${cut}${more}`;
    this.mark();
  }

  /* Return what took the place of a node, on the other side; or the nearest node that is there, too. */
  partners(at, index) {
    const other = this.sides[1 - at];
    const node = this.sides[at].nodes[index];
    if (!other) return [];
    if (node.p !== undefined) return [node.p];
    const region = other.regions.get(node.r) || [];
    const differing = region.filter((each) => other.nodes[each].s !== "same");
    if (differing.length) return differing;
    if (region.length) return region;
    const seen = new Set([index]);
    for (let edge = [index]; edge.length;) {
      const found = edge.map((each) => this.sides[at].nodes[each].p).find((each) => each !== undefined);
      if (found !== undefined) return [found];
      edge = edge.flatMap(this.sides[at].near).filter((each) => !seen.has(each) && seen.add(each));
    }
    return [];
  }

  /* Select a node, draw it if it is not drawn, and show its partners. */
  choose(at, index) {
    this.selected = [at, index];
    const node = this.sides[at].nodes[index];
    if (!this.drawings[at].boxes.has(index)) {
      const place = at && node.p !== undefined ? node.p : index;
      const view = this.allViews.findIndex(({ kind, region, start }) =>
        kind === "whole" || (kind === "region" && region === node.r) ||
        (kind === "part" && start <= place && place < start + PART && !(at && node.p === undefined)));
      if (view >= 0) this.viewSelect.value = view;
      this.redraw();
    } else this.mark();
    const partners = this.partners(at, index);
    this.drawings[at].focus(index);
    if (partners.length) this.drawings[1 - at].show(partners[0]);
    this.describe(at, index, partners);
  }

  chooseRegion(region) {
    const graph = this.data.graphs.findIndex((each) => [...each.before, ...each.after].some((node) => node.r === region));
    if (graph < 0) return;
    if (graph !== this.number) this.open(graph);
    this.viewSelect.value = this.allViews.findIndex((view) => view.kind === "region" && view.region === region);
    this.redraw();
    const at = this.sides[0].regions.has(region) ? 0 : 1;
    const nodes = this.sides[at].regions.get(region);
    this.choose(at, nodes.find((index) => this.sides[at].nodes[index].s !== "same") ?? nodes[0]);
  }

  /* Select the node that computes a value. */
  chooseValue(name, value) {
    const graph = this.data.graphs.findIndex((each) => each.name === name);
    if (graph < 0) return;
    if (graph !== this.number) this.open(graph);
    const at = this.sides.findIndex((side) => side.producer.has(value));
    if (at >= 0) this.choose(at, this.sides[at].producer.get(value));
  }

  mark() {
    const [at, index] = this.selected || [];
    const region = at === undefined ? undefined : this.sides[at].nodes[index].r;
    this.drawings.forEach((drawing, each) => {
      drawing.mark("selected", each === at ? [index] : []);
      drawing.mark("partner", at !== undefined && each !== at ? this.partners(at, index) : []);
      drawing.mark("in-region", region === undefined ? [] : this.sides[each].regions.get(region) || []);
    });
  }

  /* Say in which models a node is, and what differs between it and its partner. */
  status(at, index) {
    const node = this.sides[at].nodes[index];
    if (node.s === "same") return `the same in both models${node.h ? ", with changes inside" : ""}; the verification compares weights`;
    if (node.s !== "changed") return `only in the model ${at ? "after" : "before"}`;
    const other = this.sides[1 - at].nodes[node.p];
    const names = new Set([...(node.a || []), ...(other.a || [])].map(([name]) => name));
    const text = (each, name) => JSON.stringify((each.a || []).find(([own]) => own === name));
    const attributes = [...names].filter((name) => text(node, name) !== text(other, name));
    const differences = [
      JSON.stringify(node.i) !== JSON.stringify(other.i) && "other inputs",
      JSON.stringify(node.u) !== JSON.stringify(other.u) && "other outputs",
      attributes.length && `another ${attributes.join(", ")}`,
    ].filter(Boolean);
    return `in both models, with ${differences.join(" and ") || "other weights"}`;
  }

  describe(at, index, partners) {
    const panel = this.root.querySelector(".chosen");
    const node = this.sides[at].nodes[index];
    panel.replaceChildren();
    make("h4", panel, `${SIGNS[node.s]}${node.o} ${node.l}`);
    const list = make("dl", panel);
    const row = (name, text) => { make("dt", list, name); return make("dd", list, text); };
    const typed = (values) => (values || []).filter(Boolean).map((name) => `${name}${this.graph.types[name] ? ` (${this.graph.types[name]})` : ""}`).join(", ");
    if (!this.one) row("status", this.status(at, index));
    if (node.r !== undefined) {
      const [name, what] = this.data.regions[node.r];
      row("region", `${name}${what && `, ${what}`}`);
    }
    if (node.d) row("domain", node.d);
    row("reads", typed(node.i) || "nothing");
    row("computes", typed(node.u));
    for (const [name, text] of node.a || []) row(name, text);
    const inner = this.inner(this.graph, node);
    if (inner.length) {
      const cell = row("graphs inside", "");
      for (const each of inner) {
        make("button", cell, `${each.name}${this.changes(each) ? ", changed" : ""}`, { type: "button" })
          .addEventListener("click", () => { this.open(this.data.graphs.indexOf(each)); this.drawings[0].focus(this.drawings[0].shown[0]); });
      }
    }
    if (!partners.length) return;
    const other = this.sides[1 - at].nodes;
    const cell = row(at ? "before" : "after", "");
    for (const each of partners.slice(0, 12)) {
      make("button", cell, `${SIGNS[other[each].s]}${other[each].o} ${shortened(other[each].l, 40)}`, { type: "button" })
        .addEventListener("click", () => this.choose(1 - at, each));
    }
    if (partners.length > 12) cell.append(` and ${partners.length - 12} more`);
  }
}

/* A list of all nodes that has only the rows in the document that can be seen. */
class NodeTable {
  constructor(root, choose) {
    this.choose = choose;
    this.current = 0;
    const filter = make("div", root, undefined, { class: "filter" });
    this.search = make("input", make("label", filter, "name or type "), undefined, { type: "search" });
    this.status = make("select", make("label", filter, "status "));
    for (const name of ["all", "removed", "added", "changed", "same"]) make("option", this.status, name, { value: name });
    this.count = make("span", filter, "", { class: "note", "aria-live": "polite" });
    this.box = make("div", root, undefined, { class: "list", role: "listbox", tabindex: "0", "aria-label": "nodes" });
    this.space = make("div", this.box);
    this.search.addEventListener("input", () => this.apply());
    this.status.addEventListener("change", () => this.apply());
    this.box.addEventListener("scroll", () => this.render());
    this.box.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("toggle", () => this.render());
    this.id = `list${NodeTable.made = (NodeTable.made || 0) + 1}`;
  }

  fill(sides) {
    this.entries = sides.flatMap((side, at) => side.nodes.map((node, index) => ({ node, at, index })))
      .filter(({ node, at }) => !at || node.s === "added");
    this.apply();
  }

  apply() {
    const text = this.search.value.toLowerCase();
    const status = this.status.value;
    this.rows = this.entries.filter(({ node }) =>
      (status === "all" || node.s === status) && (!text || `${node.o} ${node.l}`.toLowerCase().includes(text)));
    this.count.textContent = `${this.rows.length} of ${this.entries.length} nodes`;
    this.space.style.height = `${this.rows.length * 28}px`;
    this.current = 0;
    this.box.scrollTop = 0;
    this.render();
  }

  render() {
    for (const row of this.box.querySelectorAll(".row")) row.remove();
    const first = Math.max(0, Math.floor(this.box.scrollTop / 28) - 2);
    const last = Math.min(this.rows.length, first + Math.ceil((this.box.clientHeight || 300) / 28) + 5);
    for (let i = first; i < last; i++) {
      const { node, at, index } = this.rows[i];
      const row = make("div", this.box, `${SIGNS[node.s]}${node.o}  ${node.l}`, {
        class: `row ${node.s}${i === this.current ? " current" : ""}`, role: "option", id: `${this.id}-${i}`,
        "aria-selected": i === this.current, "aria-setsize": this.rows.length, "aria-posinset": i + 1, style: `top:${i * 28}px` });
      row.addEventListener("click", () => { this.current = i; this.render(); this.choose(at, index); });
    }
    this.box.setAttribute("aria-activedescendant", this.rows.length ? `${this.id}-${this.current}` : "");
  }

  key(event) {
    const page = Math.floor(this.box.clientHeight / 28);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && this.rows.length) this.choose(this.rows[this.current].at, this.rows[this.current].index);
    else if (step !== undefined) {
      this.current = Math.max(0, Math.min(this.rows.length - 1, this.current + step));
      const top = this.current * 28;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      else if (top + 28 > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + 28 - this.box.clientHeight;
      this.render();
    } else return;
    event.preventDefault();
  }
}

/* Draw the graphs of a model when they are first seen: those of closed parts of the page are not. */
{
  const views = new Map();
  const view = (root) => views.get(root) || views.set(root, new GraphView(root)).get(root);
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      view(target);
    }
  }, { rootMargin: "300px" });
  const roots = [...document.querySelectorAll(".graphs")];
  for (const root of roots) watcher.observe(root);
  addEventListener("beforeprint", () => { // after the parts of the page were opened
    for (const root of roots.slice(0, PRINTED)) view(root);
    for (const root of roots) {
      if (!views.has(root)) root.querySelector(".drawn").textContent = `Of ${roots.length} graphs, those that were open and the first ${PRINTED} are printed.`;
    }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-region], a[data-value]");
    if (!link) return;
    event.preventDefault(); // following the link would take the focus from the node
    const heading = document.querySelector(link.getAttribute("href"));
    heading.scrollIntoView();
    const shown = view(heading.parentElement.querySelector(".graphs"));
    if (link.dataset.value === undefined) shown.chooseRegion(Number(link.dataset.region));
    else shown.chooseValue(link.dataset.graph, link.dataset.value);
  });
}
