"use strict";
/* Lay out some nodes of a graph with dagre, and draw them as SVG. */

/* A pane has at most this part of the height of the window; a name is read down to this scale. */
const HIGHEST = 0.65;
const SMALLEST = 0.4;
const SIGNS = { same: "", changed: "~ ", removed: "− ", added: "+ " };

function svg(tag, attributes, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

/* The end of a long name tells more than its scope does. */
function shortened(text, most) {
  return text.length <= most ? text : "…" + text.slice(text.length - most + 1);
}

class Drawing {
  /* side: {nodes, producer, readers, inputs, outputs}; shown: positions of nodes; select: called with one. */
  constructor(pane, side, select) {
    Object.assign(this, { pane, side, select, scale: 1, boxes: new Map(), shown: [] });
    pane.addEventListener("keydown", (event) => this.key(event));
  }

  draw(shown, nothing) {
    this.shown = shown;
    this.boxes.clear();
    this.pane.replaceChildren();
    if (!shown.length) {
      const empty = document.createElement("p");
      empty.className = "empty";
      empty.textContent = nothing;
      this.pane.append(empty);
      this.root = null;
      return;
    }
    const graph = this.layout();
    const { width, height } = graph.graph();
    this.size = [width + 20, height + 20];
    this.root = svg("svg", { viewBox: `-10 -10 ${width + 20} ${height + 20}` }, this.pane);
    for (const each of graph.edges()) this.edge(graph.edge(each).points);
    for (const id of graph.nodes()) this.box(id, graph.node(id));
    const first = this.boxes.get(shown[0]);
    if (first) first.setAttribute("tabindex", "0");
    this.fit();
  }

  layout() {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 28, ranker: "tight-tree" });
    graph.setDefaultEdgeLabel(() => ({}));
    const { nodes, producer, readers, inputs, outputs } = this.side;
    const inside = new Set(this.shown);
    for (const index of this.shown) {
      const node = nodes[index];
      const letters = Math.max(node.o.length + 2, Math.min(node.l.length, 24));
      graph.setNode(String(index), { width: Math.max(70, letters * 8 + 14), height: 42, index });
    }
    const end = (id, label, kind) => {
      if (!graph.hasNode(id)) graph.setNode(id, { width: Math.max(30, Math.min(label.length, 24) * 7 + 14), height: 22, label, kind });
      return id;
    };
    for (const index of this.shown) {
      let hidden = 0;
      for (const value of nodes[index].i || []) {
        const source = producer.get(value);
        if (source === index) continue;
        if (inside.has(source)) graph.setEdge(String(source), String(index));
        else if (source !== undefined) hidden++;
        else if (inputs.has(value)) graph.setEdge(end(`input ${value}`, value, "end"), String(index));
      }
      if (hidden) graph.setEdge(end(`above ${index}`, "…", "more"), String(index));
      let below = 0;
      for (const value of nodes[index].u || []) {
        if (outputs.has(value)) graph.setEdge(String(index), end(`output ${value}`, value, "end"));
        below += (readers.get(value) || []).some((reader) => !inside.has(reader));
      }
      if (below) graph.setEdge(String(index), end(`below ${index}`, "…", "more"));
    }
    dagre.layout(graph);
    return graph;
  }

  edge(points) {
    const [last, before] = [points[points.length - 1], points[points.length - 2]];
    let path = `M${points[0].x},${points[0].y}`;
    for (let i = 1; i < points.length - 1; i++) {
      const [here, next] = [points[i], points[i + 1]];
      path += ` Q${here.x},${here.y} ${(here.x + next.x) / 2},${(here.y + next.y) / 2}`;
    }
    svg("path", { class: "edge", d: `${path} L${last.x},${last.y}` }, this.root);
    const angle = Math.atan2(last.y - before.y, last.x - before.x) * (180 / Math.PI);
    svg("path", { class: "arrow", d: "M0,0 L-7,-3.5 L-7,3.5 Z", transform: `translate(${last.x},${last.y}) rotate(${angle})` }, this.root);
  }

  box(id, { x, y, width, height, index, label, kind }) {
    const node = index === undefined ? null : this.side.nodes[index];
    const group = svg("g", { class: `node ${kind || node.s}${node?.h ? " holds" : ""}`, transform: `translate(${x},${y})` }, this.root);
    svg("rect", { x: -width / 2, y: -height / 2, width, height, rx: kind ? 11 : 4 }, group);
    const title = svg("title", {}, group);
    if (!node) {
      svg("text", { y: 4 }, group).textContent = shortened(label, 24);
      title.textContent = kind === "more" ? "more nodes, which are not drawn" : label;
      return;
    }
    svg("text", { class: "op", y: -3, "aria-hidden": "true" }, group).textContent = SIGNS[node.s] + node.o;
    svg("text", { y: 13, "aria-hidden": "true" }, group).textContent = shortened(node.l, 24);
    group.setAttribute("role", "button");
    group.setAttribute("tabindex", "-1");
    title.textContent = `${node.s} ${node.o} ${node.l}${node.h ? ", with changes inside" : ""}`; // its accessible name, too
    group.dataset.index = index;
    group.addEventListener("click", () => this.select(index));
    this.boxes.set(index, group);
    Object.assign(group, { place: [x, y] });
  }

  /* Fit the drawing into its pane, and the pane into the window; but neither tiny nor huge. */
  fit() {
    if (!this.root) return;
    const [width, height] = [this.pane.clientWidth - 2, innerHeight * HIGHEST - 4];
    this.zoom(Math.min(1, Math.max(SMALLEST, Math.min(width / this.size[0], height / this.size[1]))));
  }

  zoom(scale) {
    this.scale = Math.min(3, Math.max(0.1, scale));
    if (!this.root) return;
    this.root.setAttribute("width", this.size[0] * this.scale);
    this.root.setAttribute("height", this.size[1] * this.scale);
  }

  mark(name, indices) {
    for (const box of this.pane.querySelectorAll(`.${name}`)) box.classList.remove(name);
    for (const index of indices) this.boxes.get(index)?.classList.add(name);
  }

  /* Bring a node into the middle of the pane; the page itself does not move. */
  show(index) {
    const box = this.boxes.get(index);
    if (!box) return;
    const [x, y] = box.place.map((at) => (at + 10) * this.scale);
    this.pane.scrollTo({ left: x - this.pane.clientWidth / 2, top: y - this.pane.clientHeight / 2 });
  }

  focus(index) {
    const box = this.boxes.get(index);
    if (!box) return;
    for (const other of this.boxes.values()) other.setAttribute("tabindex", "-1");
    box.setAttribute("tabindex", "0");
    box.focus({ preventScroll: true });
    this.show(index);
  }

  key(event) {
    const index = Number(event.target.dataset?.index);
    if (!this.boxes.has(index)) return;
    const { nodes, producer, readers } = this.side;
    const near = {
      ArrowUp: () => (nodes[index].i || []).map((value) => producer.get(value)),
      ArrowDown: () => (nodes[index].u || []).flatMap((value) => readers.get(value) || []),
      ArrowLeft: () => this.beside(index, -1),
      ArrowRight: () => this.beside(index, 1),
      Home: () => [this.shown[0]],
      End: () => [this.shown[this.shown.length - 1]],
    }[event.key];
    if (near) this.focus(near().find((other) => this.boxes.has(other)) ?? index);
    else if (event.key === "Enter" || event.key === " ") this.select(index);
    else return;
    event.preventDefault();
  }

  beside(index, step) {
    const y = this.boxes.get(index).place[1];
    const row = this.shown.filter((other) => Math.abs(this.boxes.get(other).place[1] - y) < 5);
    row.sort((a, b) => this.boxes.get(a).place[0] - this.boxes.get(b).place[0]);
    return [row[row.indexOf(index) + step]];
  }
}
