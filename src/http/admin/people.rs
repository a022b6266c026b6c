//! `/v1/admin/people`: who signs in to the console with a name and a password.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::console::hashing;
use super::super::problem::{Kind, Problem};
use super::super::state::Shared;
use super::super::{auth, json, password};
use super::{Refusals, written};
use crate::clock::At;
use crate::store::{Audit, Person, PersonChange, Role};

const USAGE: &str = "{\"name\":\"anna\",\"role\":\"viewer|operator|admin\",\"password\":\"…\"}";
const CHANGE_USAGE: &str = "one or more of {\"role\":\"…\",\"password\":\"…\",\"disabled\":true|false}";
const LONGEST_NAME: usize = 100;

/// All people.
#[derive(Serialize, ToSchema)]
pub(super) struct People {
    items: Vec<PersonView>,
}

/// A person.
#[derive(Serialize, ToSchema)]
#[schema(as = Person)]
pub(super) struct PersonView {
    name: String,
    role: Role,
    created_at: String,
    /// When the person was shut out.
    disabled_at: Option<String>,
    /// To the minute.
    last_used_at: Option<String>,
}

impl From<Person> for PersonView {
    fn from(person: Person) -> Self {
        Self {
            name: person.name,
            role: person.role,
            created_at: person.created_at.rfc3339(),
            disabled_at: person.disabled_at.map(At::rfc3339),
            last_used_at: person.last_used_at.map(At::rfc3339),
        }
    }
}

/// A new person.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPerson {
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    role: Role,
    #[schema(min_length = 12, max_length = 200)]
    password: String,
}

/// A change; what is left out stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PersonChange)]
pub(super) struct Changed {
    role: Option<Role>,
    #[schema(min_length = 12, max_length = 200)]
    password: Option<String>,
    /// Whether the person is shut out.
    disabled: Option<bool>,
}

/// The people who may sign in.
#[utoipa::path(get, path = "/v1/admin/people", operation_id = "list_people", tag = "people",
    responses((status = 200, description = "All people.", body = People), Refusals))]
pub(super) async fn list(shared: web::Data<Shared>) -> Result<HttpResponse, Problem> {
    let items = shared.store.people().await?.into_iter().map(PersonView::from).collect();
    Ok(HttpResponse::Ok().json(People { items }))
}

/// Makes a person.
#[utoipa::path(post, path = "/v1/admin/people", operation_id = "create_person", tag = "people",
    request_body = NewPerson,
    responses((status = 201, description = "Made.", body = PersonView),
              (status = 409, description = "The name is taken.", body = written::ProblemDocument,
               content_type = "application/problem+json"), Refusals))]
pub(super) async fn create(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let wanted: NewPerson = json::read(payload, &shared, USAGE).await?;
    let (name, hash) = new_person(&shared, &wanted.name, wanted.password).await?;
    let audit = entry(&shared, actor.name, "person_create", &name, Some(wanted.role.as_str()));
    if !shared.store.create_person(name.clone(), wanted.role, hash, audit).await? {
        let detail = "a person of this name exists; choose another, or change that one";
        return Err(Problem::new(Kind::NameTaken, detail));
    }
    Ok(HttpResponse::Created().json(named(&name, &shared).await?))
}

/// Changes a person's role or password, shuts the person out, or lets the person in again.
#[utoipa::path(post, path = "/v1/admin/people/{name}", operation_id = "change_person", tag = "people",
    params(("name" = String, Path, description = "The person's name.")), request_body = Changed,
    responses((status = 200, description = "As it is now.", body = PersonView), Refusals))]
pub(super) async fn change(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Problem> {
    let actor = auth::actor(&request)?;
    let wanted: Changed = json::read(payload, &shared, CHANGE_USAGE).await?;
    let name = super::name_in_path(&request)?;
    let before = named(&name, &shared).await?;
    if wanted.role.is_none() && wanted.password.is_none() && wanted.disabled.is_none() {
        return Err(Problem::new(Kind::BadRequest, format!("send {CHANGE_USAGE}")));
    }
    let action = match (&wanted.password, wanted.disabled) {
        (_, Some(true)) => "person_disable",
        (_, Some(false)) => "person_enable",
        (Some(_), None) => "person_password",
        (None, None) => "person_role",
    };
    let password_hash = match wanted.password {
        Some(given) => Some(hash(&shared, given).await?),
        None => None,
    };
    let change = PersonChange { role: wanted.role, password_hash, disabled: wanted.disabled };
    let mut audit = entry(&shared, actor.name, action, &name, wanted.role.map(Role::as_str));
    audit.from = wanted.role.map(|_| before.role.as_str().to_owned());
    if !shared.store.change_person(name.clone(), change, audit).await? {
        return Err(unknown());
    }
    Ok(HttpResponse::Ok().json(named(&name, &shared).await?))
}

/// Checks a new person's name and password; the name, and the password's hash.
pub(in super::super) async fn new_person(
    shared: &Shared,
    name: &str,
    given: String,
) -> Result<(String, String), Problem> {
    let name = super::new_name(name, LONGEST_NAME)?;
    Ok((name, hash(shared, given).await?))
}

async fn hash(shared: &Shared, given: String) -> Result<String, Problem> {
    let length = given.chars().count();
    if !(password::SHORTEST..=password::LONGEST).contains(&length) {
        let (least, most) = (password::SHORTEST, password::LONGEST);
        let detail = format!("a password has {least} to {most} characters; a few words are easy to keep in mind");
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    let mut salt = [0; 16];
    shared.entropy.fill(&mut salt);
    let hashed = hashing(shared, move || password::hash(&given, salt)).await?;
    hashed.map_err(|_| Problem::new(Kind::Internal, "the password could not be hashed"))
}

async fn named(name: &str, shared: &Shared) -> Result<PersonView, Problem> {
    let found = shared.store.people().await?.into_iter().find(|person| person.name == name);
    found.map(PersonView::from).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::new(Kind::NotFound, "there is nobody of that name")
}

/// An entry of the audit log about a person or a token.
pub(super) fn entry(shared: &Shared, actor: String, action: &str, subject: &str, to: Option<&str>) -> Audit {
    Audit {
        actor,
        at: shared.clock.now(),
        action: action.to_owned(),
        operation_id: None,
        subject: Some(subject.to_owned()),
        from: None,
        to: to.map(str::to_owned),
        note: None,
    }
}
