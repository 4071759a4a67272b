// Look up a name from a policy among an object's own properties, never among inherited ones.

export const own = (held, name) => (held && Object.hasOwn(held, name) ? held[name] : undefined);
