package pipeline

// DebtsOf reads out of a state record up to where its partition is finished, and the debts, for whoever sums up what is owed. Its error is a record of a
// version, or with a kind of debt, that is not known: what it says must not be taken for nothing.
func DebtsOf(record []byte) (offset int64, debts []Debt, err error) {
	s, err := parseState(record)
	if err == nil {
		err = s.knowsKinds()
	}
	if err != nil {
		return 0, nil, err
	}
	return s.Offset, s.Debts, nil
}
