//! Tests of many runs rather than one: model, exhaustive search, storms, stored cases, recordings and tables.

mod callers;
mod corpus;
mod explore;
mod gateway;
mod guarantees;
mod hostile_peer;
mod http;
mod http_client;
mod lanes;
mod model;
mod rounds;
mod stateless;
mod traces;
mod transitions;
mod world;
