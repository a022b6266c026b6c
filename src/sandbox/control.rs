//! The sandbox's own addresses: the page for people and `/_sandbox/…` for scripts. No fault touches them.

use serde::Serialize;
use serde_json::{Value, json};

use super::fault::Fault;
use super::page;
use super::wire::{Reply, Request};
use super::world::World;

pub(super) fn answer(request: &Request, world: &World) -> Reply {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => page::render(world),
        ("GET", "/_sandbox/entities") => listed("entities", &world.entities()),
        ("DELETE", "/_sandbox/entities") => {
            world.clear_entities();
            done()
        }
        ("GET", "/_sandbox/calls") => {
            let calls = serde_json::to_value(world.calls()).unwrap_or_default();
            Reply::json(200, &json!({ "counts": world.counts(), "calls": calls }))
        }
        ("GET", "/_sandbox/faults") => faults(world),
        ("POST", "/_sandbox/faults") => match read_json(request).and_then(Fault::list_from_json) {
            // All or none: a list with a mistake in it changes nothing.
            Ok(list) => {
                list.into_iter().for_each(|fault| world.add_fault(fault));
                faults(world)
            }
            Err(why) => Reply::json(400, &json!({ "error": why })),
        },
        ("DELETE", "/_sandbox/faults") => {
            world.clear_faults();
            done()
        }
        ("GET", "/_sandbox/settings") => settings(world),
        ("PUT", "/_sandbox/settings") => {
            match read_json(request).map(|body| body.get("unique_keys").and_then(Value::as_bool)) {
                Ok(Some(unique)) => {
                    world.set_unique_keys(unique);
                    settings(world)
                }
                Ok(None) => Reply::json(400, &json!({ "error": "unique_keys: true or false is needed" })),
                Err(why) => Reply::json(400, &json!({ "error": why })),
            }
        }
        (_, "/" | "/_sandbox/entities" | "/_sandbox/calls" | "/_sandbox/faults" | "/_sandbox/settings") => {
            Reply::json(405, &json!({ "error": "this path knows other methods" }))
        }
        _ => Reply::json(404, &json!({ "error": "no such path; the page at / says what there is" })),
    }
}

fn read_json(request: &Request) -> Result<Value, String> {
    serde_json::from_slice(&request.body).map_err(|error| format!("the body is no JSON: {error}"))
}

fn listed(name: &str, items: &impl Serialize) -> Reply {
    Reply::json(200, &json!({ name: serde_json::to_value(items).unwrap_or_default() }))
}

fn faults(world: &World) -> Reply {
    let faults: Vec<Value> = world.faults().iter().map(Fault::to_json).collect();
    Reply::json(200, &json!({ "faults": faults }))
}

fn settings(world: &World) -> Reply {
    Reply::json(200, &json!({ "unique_keys": world.unique_keys() }))
}

fn done() -> Reply {
    Reply { status: 204, headers: Vec::new(), body: Vec::new() }
}
