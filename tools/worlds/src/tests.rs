use super::*;

fn run(world: &mut CubeWorld, players: &mut RandomPlayers, steps: usize) {
    for _ in 0..steps {
        world.step(&players.next_inputs());
    }
}

#[test]
fn worlds_are_the_same_bit_for_bit() {
    for (objects, hash) in [(104, 0x7c3d_d4a2_c8c4_9cf8), (504, 0xb67b_ac59_597f_713f), (1001, 0xd57a_2acf_e2e1_e54a)] {
        let (mut world, mut players) = (CubeWorld::new(objects), RandomPlayers::new(1));
        run(&mut world, &mut players, 300);
        assert_eq!(world.hash(), hash, "{objects} cubes: {:#018x}", world.hash());
    }
}

#[test]
fn restored_world_continues_as_the_saved_one() {
    let (mut world, mut players) = (CubeWorld::new(104), RandomPlayers::new(3));
    for _ in 0..8 {
        run(&mut world, &mut players, 37);
        let (saved, same_players) = (world.save(), players.clone());
        run(&mut world, &mut players, 90);
        let expected = world.hash();
        world.restore(&saved);
        players = same_players;
        run(&mut world, &mut players, 90);
        assert_eq!(world.hash(), expected, "saved at step {}", world.steps());
    }
}

#[test]
fn player_pushes_only_where_it_presses() {
    let mut world = CubeWorld::new(PLAYERS);
    let before = world.state(0).unwrap();
    let inputs = [PlayerInput::LEFT, PlayerInput::NONE, PlayerInput::NONE, PlayerInput::NONE];
    (0..30).for_each(|_| world.step(&inputs));
    let after = world.state(0).unwrap();
    assert!(after.position[0] < before.position[0] - 0.5, "{after:?}");
    assert!((after.position[2] - before.position[2]).abs() < 0.1, "{after:?}");
}

#[test]
fn cubes_stay_inside_of_the_room() {
    let (mut world, mut players) = (CubeWorld::new(504), RandomPlayers::new(2));
    for _ in 0..20 {
        run(&mut world, &mut players, 30);
        let is_inside = |state: CubeState| {
            let [x, y, z] = state.position;
            x.abs() < HALF_SIDE && z.abs() < HALF_SIDE && (0.0..HEIGHT).contains(&y)
        };
        assert!(world.states().all(is_inside), "step {}", world.steps());
    }
}

#[test]
fn cube_that_is_set_to_rest_stays_there() {
    let mut world = CubeWorld::new(8);
    let run = |world: &mut CubeWorld| (0..60).for_each(|_| world.step(&[PlayerInput::NONE; PLAYERS]));
    run(&mut world);
    let thrown = CubeState { velocity: [3.0, 3.0, 0.0], is_at_rest: false, ..world.state(5).unwrap() };
    world.set_state(5, &thrown);
    (0..10).for_each(|_| world.step(&[PlayerInput::NONE; PLAYERS]));
    let state = CubeState { position: [1.0, 0.45, 9.0], is_at_rest: true, ..world.state(5).unwrap() };
    world.set_state(5, &state);
    run(&mut world);
    let after = world.state(5).unwrap();
    assert!(after.is_at_rest);
    let drift = after.position.iter().zip(state.position).map(|(now, set)| (now - set).abs()).fold(0.0, f32::max);
    assert!(drift < 0.02, "new contacts push it by {drift} m");
}
