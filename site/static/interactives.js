// Interactives without a kernel: the module that anywidget runs in JupyterLab is mounted here on a model that
// lives in the page.
(() => {
  const page = document.documentElement;
  const places = [...document.querySelectorAll(".sdl-interactive")];

  function pageModel(state) {
    const listeners = new Map();
    const emit = (event) => (listeners.get(event) ?? []).forEach((callback) => callback());
    return {
      get: (name) => state[name],
      set(name, value) {
        if (state[name] === value) return;
        state[name] = value;
        emit(`change:${name}`);
        emit("change");
      },
      save_changes() {},
      on: (event, callback) => listeners.set(event, [...(listeners.get(event) ?? []), callback]),
      off: (event, callback) =>
        listeners.set(
          event,
          (listeners.get(event) ?? []).filter((other) => callback && other !== callback),
        ),
    };
  }

  function mount(place, module) {
    const model = pageModel(JSON.parse(place.querySelector("script").textContent));
    const el = document.createElement("div");
    place.replaceChildren(el);
    place.sdlModel = model;
    module.render({ model, el });
    const twins = places.filter((other) => other.dataset.module === place.dataset.module);
    const section = el.querySelector("section[aria-label]");
    if (section && twins.length > 1) section.ariaLabel += ` ${twins.indexOf(place) + 1}`;
    place.dataset.mounted = "true";
  }

  for (const name of new Set(places.map((place) => place.dataset.module))) {
    const script = document.createElement("script");
    script.src = `${page.dataset.content_root}_static/interactives/${name}.js`;
    script.onload = () =>
      places
        .filter((place) => place.dataset.module === name)
        .forEach((place) => mount(place, globalThis.sdlInteractives[name]));
    document.head.append(script);
  }
})();
